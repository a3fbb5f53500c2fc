//! Draws pictures from words: the same prompt always gives the same PNG.

use sha2::{Digest, Sha256};

/// Width and height: large enough to look at, small enough to send inside a message.
pub const SIDE: u32 = 256;

/// Samples per pixel in each direction, so that edges are smooth.
const SAMPLES: u32 = 2;

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[error("the picture could not be written: {0}")]
pub struct PictureError(#[from] png::EncodingError);

/// Draws a motif that the prompt names, or shapes that depend on its words.
pub fn draw(prompt: &str) -> Result<Vec<u8>, PictureError> {
    let prompt = prompt.to_lowercase();
    let seed: [u8; 32] = Sha256::digest(prompt.as_bytes()).into();
    let shapes = motif(&prompt).map_or_else(|| abstract_shapes(&seed), <[Shape]>::to_vec);
    let (top, bottom) = sky(&seed);

    let mut pixels = Vec::with_capacity((SIDE * SIDE * 3) as usize);
    for y in 0..SIDE {
        for x in 0..SIDE {
            pixels.extend_from_slice(&pixel(x, y, &shapes, top, bottom));
        }
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, SIDE, SIDE);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file)
}

type Color = [f32; 3];

/// Coordinates run from 0 to 1, from the upper left.
#[derive(Clone, Copy)]
enum Shape {
    Ellipse {
        at: (f32, f32),
        radii: (f32, f32),
        color: Color,
    },
    Triangle {
        corners: [(f32, f32); 3],
        color: Color,
    },
    Bar {
        from: (f32, f32),
        to: (f32, f32),
        color: Color,
    },
}

const INK: Color = [0.13, 0.12, 0.14];
const WHITE: Color = [0.98, 0.97, 0.94];
const ORANGE: Color = [0.93, 0.58, 0.24];
const BROWN: Color = [0.52, 0.35, 0.22];
const PINK: Color = [0.95, 0.62, 0.66];
const YELLOW: Color = [0.99, 0.83, 0.25];
const GREEN: Color = [0.27, 0.55, 0.29];
const RED: Color = [0.78, 0.25, 0.22];

const CAT: &[Shape] = &[
    triangle((0.24, 0.46), (0.27, 0.16), (0.46, 0.32), ORANGE),
    triangle((0.76, 0.46), (0.73, 0.16), (0.54, 0.32), ORANGE),
    ellipse(0.5, 0.54, 0.28, 0.25, ORANGE),
    ellipse(0.39, 0.49, 0.055, 0.065, WHITE),
    ellipse(0.61, 0.49, 0.055, 0.065, WHITE),
    ellipse(0.39, 0.49, 0.02, 0.055, INK),
    ellipse(0.61, 0.49, 0.02, 0.055, INK),
    triangle((0.46, 0.59), (0.54, 0.59), (0.5, 0.64), PINK),
    bar((0.12, 0.60), (0.38, 0.61), INK),
    bar((0.14, 0.68), (0.38, 0.65), INK),
    bar((0.62, 0.61), (0.88, 0.60), INK),
    bar((0.62, 0.65), (0.86, 0.68), INK),
];
const DOG: &[Shape] = &[
    ellipse(0.5, 0.52, 0.25, 0.28, BROWN),
    ellipse(0.24, 0.45, 0.09, 0.22, INK),
    ellipse(0.76, 0.45, 0.09, 0.22, INK),
    ellipse(0.5, 0.66, 0.15, 0.12, WHITE),
    ellipse(0.5, 0.60, 0.06, 0.04, INK),
    ellipse(0.40, 0.46, 0.035, 0.04, INK),
    ellipse(0.60, 0.46, 0.035, 0.04, INK),
    ellipse(0.5, 0.77, 0.05, 0.07, PINK),
];
const SUN: &[Shape] = &[
    triangle((0.44, 0.3), (0.56, 0.3), (0.5, 0.05), YELLOW),
    triangle((0.44, 0.7), (0.56, 0.7), (0.5, 0.95), YELLOW),
    triangle((0.3, 0.44), (0.3, 0.56), (0.05, 0.5), YELLOW),
    triangle((0.7, 0.44), (0.7, 0.56), (0.95, 0.5), YELLOW),
    triangle((0.32, 0.40), (0.40, 0.32), (0.19, 0.19), YELLOW),
    triangle((0.68, 0.40), (0.60, 0.32), (0.81, 0.19), YELLOW),
    triangle((0.32, 0.60), (0.40, 0.68), (0.19, 0.81), YELLOW),
    triangle((0.68, 0.60), (0.60, 0.68), (0.81, 0.81), YELLOW),
    ellipse(0.5, 0.5, 0.22, 0.22, ORANGE),
];
const TREE: &[Shape] = &[
    bar((0.5, 0.6), (0.5, 0.95), BROWN),
    bar((0.48, 0.6), (0.48, 0.95), BROWN),
    bar((0.52, 0.6), (0.52, 0.95), BROWN),
    triangle((0.22, 0.72), (0.78, 0.72), (0.5, 0.36), GREEN),
    triangle((0.27, 0.53), (0.73, 0.53), (0.5, 0.22), GREEN),
    triangle((0.33, 0.35), (0.67, 0.35), (0.5, 0.08), GREEN),
];
const HOUSE: &[Shape] = &[
    triangle((0.25, 0.5), (0.75, 0.5), (0.25, 0.88), WHITE),
    triangle((0.75, 0.5), (0.75, 0.88), (0.25, 0.88), WHITE),
    triangle((0.18, 0.5), (0.82, 0.5), (0.5, 0.2), RED),
    triangle((0.45, 0.66), (0.57, 0.66), (0.45, 0.88), BROWN),
    triangle((0.57, 0.66), (0.57, 0.88), (0.45, 0.88), BROWN),
];

/// The first match wins: "a cat in a tree" is about the cat.
const MOTIFS: &[(&[&str], &[Shape])] = &[
    (&["cat", "kitten", "猫", "ねこ"], CAT),
    (&["dog", "puppy", "犬", "いぬ"], DOG),
    (&["house", "home", "家"], HOUSE),
    (&["tree", "forest", "木", "森"], TREE),
    (&["sun", "太陽"], SUN),
];

fn motif(prompt: &str) -> Option<&'static [Shape]> {
    let named = |word: &&str| match word.is_ascii() {
        true => prompt
            .split(|c: char| !c.is_alphanumeric())
            .any(|said| said == *word || said.strip_suffix('s') == Some(word)),
        false => prompt.contains(word),
    };
    MOTIFS
        .iter()
        .find(|(words, _)| words.iter().any(named))
        .map(|(_, shapes)| *shapes)
}

fn abstract_shapes(seed: &[u8; 32]) -> Vec<Shape> {
    seed[8..]
        .chunks_exact(6)
        .map(|bytes| {
            let [x, y, size, r, g, b] = std::array::from_fn(|i| f32::from(bytes[i]) / 255.0);
            let radius = 0.06 + 0.2 * size;
            ellipse(0.15 + 0.7 * x, 0.15 + 0.7 * y, radius, radius, [r, g, b])
        })
        .collect()
}

fn sky(seed: &[u8; 32]) -> (Color, Color) {
    let light = |at: usize| std::array::from_fn(|i| 0.55 + 0.4 * f32::from(seed[at + i]) / 255.0);
    (light(0), light(3))
}

fn pixel(x: u32, y: u32, shapes: &[Shape], top: Color, bottom: Color) -> [u8; 3] {
    let mut sum = [0.0; 3];
    let step = 1.0 / (SIDE * SAMPLES) as f32;
    for sub in 0..SAMPLES * SAMPLES {
        let px = (x * SAMPLES + sub % SAMPLES) as f32 * step;
        let py = (y * SAMPLES + sub / SAMPLES) as f32 * step;
        let color = shapes
            .iter()
            .rev()
            .find(|shape| shape.covers(px, py))
            .map_or_else(|| mix(top, bottom, py), Shape::color);
        for (total, part) in sum.iter_mut().zip(color) {
            *total += part;
        }
    }
    sum.map(|total: f32| (total / (SAMPLES * SAMPLES) as f32 * 255.0).round() as u8)
}

fn mix(from: Color, to: Color, share: f32) -> Color {
    std::array::from_fn(|i| from[i] + (to[i] - from[i]) * share)
}

impl Shape {
    fn color(&self) -> Color {
        match *self {
            Self::Ellipse { color, .. }
            | Self::Triangle { color, .. }
            | Self::Bar { color, .. } => color,
        }
    }

    fn covers(&self, x: f32, y: f32) -> bool {
        match *self {
            Self::Ellipse { at, radii, .. } => {
                ((x - at.0) / radii.0).powi(2) + ((y - at.1) / radii.1).powi(2) <= 1.0
            }
            Self::Triangle {
                corners: [a, b, c], ..
            } => {
                let side = |p: (f32, f32), q: (f32, f32)| {
                    (q.0 - p.0) * (y - p.1) - (q.1 - p.1) * (x - p.0)
                };
                let sides = [side(a, b), side(b, c), side(c, a)];
                sides.iter().all(|s| *s >= 0.0) || sides.iter().all(|s| *s <= 0.0)
            }
            Self::Bar { from, to, .. } => {
                const HALF_WIDTH: f32 = 0.012;
                let (dx, dy) = (to.0 - from.0, to.1 - from.1);
                let along = ((x - from.0) * dx + (y - from.1) * dy) / (dx * dx + dy * dy);
                let along = along.clamp(0.0, 1.0);
                let (nx, ny) = (from.0 + along * dx, from.1 + along * dy);
                (x - nx).powi(2) + (y - ny).powi(2) <= HALF_WIDTH * HALF_WIDTH
            }
        }
    }
}

const fn ellipse(x: f32, y: f32, rx: f32, ry: f32, color: Color) -> Shape {
    Shape::Ellipse {
        at: (x, y),
        radii: (rx, ry),
        color,
    }
}

const fn triangle(a: (f32, f32), b: (f32, f32), c: (f32, f32), color: Color) -> Shape {
    Shape::Triangle {
        corners: [a, b, c],
        color,
    }
}

const fn bar(from: (f32, f32), to: (f32, f32), color: Color) -> Shape {
    Shape::Bar { from, to, color }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_a_png_of_its_prompt() {
        let prompts = [
            "a cat",
            "a dog",
            "the sun",
            "two trees",
            "my house",
            "freedom",
            "猫",
            "",
        ];
        let files: Vec<_> = prompts.iter().map(|prompt| draw(prompt).unwrap()).collect();
        for (prompt, file) in prompts.iter().zip(&files) {
            let mut reader = png::Decoder::new(std::io::Cursor::new(file))
                .read_info()
                .unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            let info = reader.next_frame(&mut pixels).unwrap();
            assert_eq!((info.width, info.height), (SIDE, SIDE), "{prompt}");
            assert_eq!(draw(prompt).unwrap(), *file, "{prompt}");
        }
        for (i, one) in files.iter().enumerate() {
            assert!(
                files[i + 1..].iter().all(|other| other != one),
                "{}",
                prompts[i]
            );
        }
    }

    #[test]
    fn a_motif_is_a_word_of_the_prompt() {
        let cases = [
            ("draw a cat", true),
            ("cats!", true),
            ("concatenate", false),
            ("猫を描いて", true),
            ("", false),
        ];
        for (prompt, known) in cases {
            assert_eq!(motif(prompt).is_some(), known, "{prompt}");
        }
    }
}
