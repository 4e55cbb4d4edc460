//! The plot: bars of fsyncs per second, grouped by the number of writers, as SVG.

use std::fmt::Write;

use crate::{contenders::Contender, fsync::Row};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Around the bars: room for the scale, the title and the names.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 48.0;
/// The part of a group's width that its bars take.
const FILLED: f64 = 0.78;

fn color(contender: Contender) -> &'static str {
    match contender {
        Contender::Bare => "#9aa0a6",
        Contender::Lazycg => "#1f6fd0",
        Contender::Stock => "#d9742b",
    }
}

fn label(contender: Contender) -> &'static str {
    match contender {
        Contender::Bare => "bare processes in the root cgroups",
        Contender::Lazycg => "io.containerd.lazycg.v1",
        Contender::Stock => "io.containerd.runc.v2",
    }
}

/// Draws the median rates; above a container's bar stands its part of what bare processes
/// reached.
pub(crate) fn svg(rows: &[Row]) -> String {
    let highest = rows
        .iter()
        .flat_map(|row| Contender::ALL.map(|contender| row.rate(contender)))
        .flatten()
        .fold(1.0, f64::max);
    let step = nice_step(highest / 5.0);
    let top = (highest / step).ceil() * step;
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / top);
    let group = (WIDTH - LEFT - RIGHT) / rows.len().max(1) as f64;
    let bar = group * FILLED / Contender::ALL.len() as f64;

    let mut out = Svg::new();
    out.text(
        LEFT,
        22.0,
        "start",
        15,
        "fsyncs per second of N writers, ext4 on BFQ (more is better)",
    );
    let mut x = LEFT;
    for contender in Contender::ALL {
        out.rectangle(x, 35.0, 11.0, 11.0, color(contender));
        out.text(x + 16.0, 45.0, "start", 12, label(contender));
        x += 34.0 + 6.4 * label(contender).len() as f64;
    }
    let mut value = 0.0;
    while value <= top {
        out.line(LEFT, y(value), WIDTH - RIGHT);
        out.text(
            LEFT - 8.0,
            y(value) + 4.0,
            "end",
            12,
            &format!("{value:.0}"),
        );
        value += step;
    }
    for (index, row) in rows.iter().enumerate() {
        let start = LEFT + group * (index as f64 + (1.0 - FILLED) / 2.0);
        for (place, contender) in Contender::ALL.into_iter().enumerate() {
            let Some(rate) = row.rate(contender) else {
                continue;
            };
            let x = start + bar * place as f64;
            out.rectangle(
                x + 1.0,
                y(rate),
                bar - 2.0,
                y(0.0) - y(rate),
                color(contender),
            );
            if let Some(ratio) = row.ratio(contender, Contender::Bare)
                && contender != Contender::Bare
            {
                out.text(
                    x + bar / 2.0,
                    y(rate) - 5.0,
                    "middle",
                    12,
                    &format!("{ratio:.2}"),
                );
            }
        }
        let middle = LEFT + group * (index as f64 + 0.5);
        out.text(
            middle,
            HEIGHT - 24.0,
            "middle",
            13,
            &format!("N = {}", row.writers),
        );
    }
    out.text(
        LEFT,
        HEIGHT - 6.0,
        "start",
        11,
        "Figures above bars: the part of what bare processes reach.",
    );
    out.finish()
}

/// The round number (1, 2 or 5 times a power of ten) at or above `value`.
pub(crate) fn nice_step(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= value);
    factor.unwrap_or(10.0) * power
}

/// SVG text under construction. Coordinates are pixels from the upper left corner.
pub(crate) struct Svg(String);

impl Svg {
    /// Width and height.
    pub(crate) const SIZE: (f64, f64) = (WIDTH, HEIGHT);

    pub(crate) fn new() -> Svg {
        let mut svg = Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\">\n"
        ));
        // A ground of its own: pages may be dark.
        svg.rectangle(0.0, 0.0, WIDTH, HEIGHT, "#ffffff");
        svg
    }

    pub(crate) fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        ));
    }

    fn line(&mut self, x: f64, y: f64, to: f64) {
        self.put(format_args!(
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>"
        ));
    }

    pub(crate) fn upright(&mut self, x: f64, y: f64, to: f64) {
        self.put(format_args!(
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{to:.1}\" stroke=\"#dddddd\"/>"
        ));
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: &str, size: u32, text: &str) {
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
             fill=\"#222222\">{text}</text>"
        ));
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{element}").expect("writing to a string cannot fail");
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (value, step) in [
            (1.0, 1.0),
            (1.1, 2.0),
            (4200.0, 5000.0),
            (0.07, 0.1),
            (600.0, 1000.0),
        ] {
            assert!((nice_step(value) - step).abs() < 1e-9, "{value}");
        }
    }
}
