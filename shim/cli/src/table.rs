//! Text in aligned columns.

/// Lines of cells under a heading, each column as wide as its widest cell. The last column
/// is not padded, so that no line ends in blanks.
pub(crate) fn table<const N: usize>(heading: [&str; N], lines: &[[String; N]]) -> String {
    let mut widths = heading.map(|cell| cell.chars().count());
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut push = |line: &[String; N]| {
        let mut padded = String::new();
        for (cell, width) in line.iter().zip(widths) {
            padded.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    };
    push(&heading.map(String::from));
    lines.iter().for_each(push);
    text
}

/// `items` in one cell; `-` if there are none.
pub(crate) fn cell(items: impl IntoIterator<Item = String>, separator: &str) -> String {
    let items: Vec<String> = items.into_iter().collect();
    if items.is_empty() {
        "-".to_string()
    } else {
        items.join(separator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_where_their_text_does() {
        let line = |cells: [&str; 3]| cells.map(String::from);
        assert_eq!(
            table(
                ["NAME", "N", "WHY"],
                &[line(["zürich", "1", "a b"]), line(["b", "1000", ""])]
            ),
            "NAME    N     WHY\n\
             zürich  1     a b\n\
             b       1000\n"
        );
        assert_eq!(table(["NAME"], &[]), "NAME\n");
    }

    #[test]
    fn nothing_is_a_dash() {
        assert_eq!(cell([], ", "), "-");
        assert_eq!(cell(["a".to_string(), "b".to_string()], ", "), "a, b");
    }
}
