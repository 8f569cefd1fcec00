//! Images in fewer pixels.

use std::io::Cursor;

use image::imageops::FilterType;
use image::{ImageError, ImageReader, Limits};

/// The longest side of an image that is read, in pixels.
const LONGEST_SIDE: u32 = 1 << 15;

/// The most memory that an image may take, in bytes.
const MOST_MEMORY: u64 = 256 << 20;

/// Returns a PNG or JPEG image with no side longer than `longest` pixels, in its own format. An image that is
/// small enough is returned as it is.
///
/// # Errors
/// It is no such image, it is damaged, or it has more than 32,768 pixels on a side or takes more than 256 MiB.
pub fn scaled(bytes: &[u8], longest: u32) -> Result<Vec<u8>, ImageError> {
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

#[cfg(test)]
mod tests {
    use image::{DynamicImage, ImageFormat};

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
        for format in [ImageFormat::Png, ImageFormat::Jpeg] {
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
}
