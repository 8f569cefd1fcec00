//! Images in fewer pixels.

use std::io::Cursor;

use image::imageops::FilterType;
use image::{ImageError, ImageFormat, ImageReader, Limits};

/// The longest side of an image that is read, in pixels.
const LONGEST_SIDE: u32 = 1 << 15;

/// The most memory that an image may take, in bytes.
const MOST_MEMORY: u64 = 256 << 20;

/// Returns a PNG, JPEG, GIF or WebP image with no side longer than `longest` pixels, in its own format. An image that is
/// small enough is returned as it is; of a larger one that moves, its first picture is left.
///
/// # Errors
/// It is no such image, it is damaged, or it has more than 32,768 pixels on a side or takes more than 256 MiB.
pub(super) fn scaled(bytes: &[u8], longest: u32) -> Result<Vec<u8>, ImageError> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(LONGEST_SIDE);
    limits.max_image_height = Some(LONGEST_SIDE);
    limits.max_alloc = Some(MOST_MEMORY);
    reader.limits(limits);
    let format = reader.format();
    let image = reader.decode()?;
    let (Some(format), true) = (format, image.width().max(image.height()) > longest) else {
        return Ok(bytes.to_owned());
    };
    let mut scaled = Vec::new();
    let image = image.resize(longest, longest, FilterType::Triangle);
    image.write_to(&mut Cursor::new(&mut scaled), format)?;
    Ok(scaled)
}

/// The longest side of an image that models read, in pixels.
const LONGEST_SIDE_READ: u32 = 8_000;

/// The sides to which an image of too many bytes is scaled down, one after the other, in pixels.
const SMALLER_SIDES: [u32; 3] = [2_000, 1_000, 500];

/// Returns an image with at most `most` bytes and no side longer than `longest` pixels: as it is, or scaled down.
///
/// Returns `None` if these bytes are no whole image of this MIME type.
pub fn image_within(
    bytes: &[u8],
    mime: &str,
    longest: Option<u32>,
    most: usize,
) -> Option<Vec<u8>> {
    let format = ImageFormat::from_mime_type(mime)?;
    if image::guess_format(bytes).ok()? != format {
        return None;
    }
    let longest = longest.unwrap_or(LONGEST_SIDE_READ).min(LONGEST_SIDE_READ);
    let sides = SMALLER_SIDES.into_iter().filter(|side| *side < longest);
    for side in std::iter::once(longest).chain(sides) {
        let image = scaled(bytes, side).ok()?;
        if image.len() <= most {
            return Some(image);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use image::DynamicImage;

    use super::*;

    fn made(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Vec::new();
        let image = DynamicImage::new_rgb8(width, height);
        image
            .write_to(&mut Cursor::new(&mut bytes), format)
            .unwrap();
        bytes
    }

    #[test]
    fn the_longest_side_is_as_wanted_and_small_images_stay() {
        use ImageFormat::{Gif, Jpeg, Png, WebP};
        for format in [Png, Jpeg, Gif, WebP] {
            let bytes = made(400, 300, format);
            let small = scaled(&bytes, 100).unwrap();
            assert_eq!(image::guess_format(&small).unwrap(), format);
            let small = image::load_from_memory(&small).unwrap();
            assert_eq!((small.width(), small.height()), (100, 75));
            assert_eq!(scaled(&bytes, 400).unwrap(), bytes);
        }
    }

    #[test]
    fn huge_and_invalid_images_are_refused() {
        let png = made(40, 30, ImageFormat::Png);
        for bytes in [&b""[..], b"GIF89a", b"text", &png[..40]] {
            assert!(scaled(bytes, 10).is_err());
        }
        // The header says that it has 65,535 x 65,535 pixels.
        let mut huge = png;
        huge[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
        assert!(scaled(&huge, 10).is_err());
    }
    #[test]
    fn only_whole_images_that_models_read_are_sent() {
        let png = made(400, 300, ImageFormat::Png);
        let within = |bytes: &[u8], mime, longest, most| image_within(bytes, mime, longest, most);
        assert_eq!(within(&png, "image/png", None, 1 << 20), Some(png.clone()));
        let small = within(&png, "image/png", Some(100), 1 << 20).unwrap();
        assert_eq!(image::load_from_memory(&small).unwrap().width(), 100);
        for (bytes, mime) in [
            (&b"hello"[..], "image/png"),
            (b"", "image/png"),
            (&png[..40], "image/png"),
            (&png, "image/jpeg"),
            (&png, "text/plain"),
            (b"GIF89a and more than is allowed", "image/gif"),
        ] {
            assert_eq!(within(bytes, mime, None, 20), None, "{mime}");
        }
        let gif = made(40, 30, ImageFormat::Gif);
        assert_eq!(within(&gif, "image/gif", None, 1 << 20), Some(gif.clone()));
        let wide = made(9_000, 50, ImageFormat::Png);
        let scaled = within(&wide, "image/png", None, 1 << 20).unwrap();
        assert_eq!(image::load_from_memory(&scaled).unwrap().width(), 8_000);
        // Noise can hardly be compressed.
        let noise =
            (0..2_200 * 1_000 * 3_u64).map(|at| (at.wrapping_mul(at ^ 0x9e37_79b9) >> 13) as u8);
        let noise = image::RgbImage::from_raw(2_200, 1_000, noise.collect()).unwrap();
        let mut large = Vec::new();
        let mut cursor = Cursor::new(&mut large);
        noise.write_to(&mut cursor, ImageFormat::Png).unwrap();
        let most = large.len() / 3;
        let fits = within(&large, "image/png", None, most).unwrap();
        assert!(fits.len() <= most);
    }
}
