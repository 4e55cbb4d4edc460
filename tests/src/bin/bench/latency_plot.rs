//! The plot of latency: one bar per contestant, made of the parts of a container's life.

use crate::{
    contestant::Contestant,
    latency::Measured,
    life::Parts,
    plot::{Svg, nice_step},
};

const LEFT: f64 = 110.0;
const RIGHT: f64 = 60.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 48.0;
/// The part of a row's height that its bar takes.
const FILLED: f64 = 0.7;

const COLORS: [&str; Parts::NAMES.len()] = ["#1f6fd0", "#5aa469", "#9aa0a6", "#d9742b"];

/// Draws the medians of the parts, one after the other.
pub(crate) fn svg(measured: &Measured, contestants: &[Contestant]) -> String {
    let rows: Vec<(Contestant, Vec<f64>)> = contestants
        .iter()
        .filter_map(|&contestant| {
            let parts = measured.parts.iter().map(|part| part.median(contestant));
            Some((contestant, parts.collect::<Option<_>>()?))
        })
        .collect();
    let longest = rows.iter().map(|(_, parts)| parts.iter().sum());
    let longest = longest.fold(1.0, f64::max);
    let step = nice_step(longest / 6.0);
    let end = (longest / step).ceil() * step;
    let mut out = Svg::new();
    let (width, height) = Svg::SIZE;
    let x = |value: f64| LEFT + (width - LEFT - RIGHT) * value / end;

    let title = "one container that runs `true`, ms, as containerd's client waits (less is better)";
    out.text(LEFT, 22.0, "start", 15, title);
    let mut key = LEFT;
    for (name, color) in Parts::NAMES.into_iter().zip(COLORS) {
        out.rectangle(key, 35.0, 11.0, 11.0, color);
        out.text(key + 16.0, 45.0, "start", 12, name);
        key += 40.0 + 6.4 * name.len() as f64;
    }
    let mut value = 0.0;
    while value <= end {
        out.upright(x(value), TOP, height - BOTTOM);
        let scale = format!("{value:.0}");
        out.text(x(value), height - BOTTOM + 16.0, "middle", 12, &scale);
        value += step;
    }
    let row_height = (height - TOP - BOTTOM) / rows.len().max(1) as f64;
    for (index, (contestant, parts)) in rows.iter().enumerate() {
        let top = TOP + row_height * (index as f64 + (1.0 - FILLED) / 2.0);
        let middle = top + row_height * FILLED / 2.0 + 4.0;
        out.text(LEFT - 8.0, middle, "end", 13, contestant.name());
        let mut so_far = 0.0;
        for (part, color) in parts.iter().zip(COLORS) {
            let (from, to) = (x(so_far), x(so_far + part));
            out.rectangle(from, top, to - from, row_height * FILLED, color);
            so_far += part;
        }
        out.text(
            x(so_far) + 6.0,
            middle,
            "start",
            12,
            &format!("{so_far:.0}"),
        );
    }
    let note = "runc: called by hand, without containerd and shim.";
    out.text(LEFT, height - 6.0, "start", 11, note);
    out.finish()
}
