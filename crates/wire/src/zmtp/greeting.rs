//! The greeting: 64 bytes that name the version and the security mechanism.

use bytes::BytesMut;

use super::Error;

/// The length of a 3.x greeting, in bytes.
pub(super) const GREETING_LEN: usize = 64;

/// The content of a 3.x peer's greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// 0 for ZMTP 3.0; 1 for 3.1 and later versions.
    pub(super) minor: u8,
}

impl Greeting {
    /// Removes a greeting from the front of `read`; returns `None` until it is complete.
    ///
    /// A peer with an unsupported version is refused at the first byte that shows it: older versions send
    /// fewer than 64 bytes and then wait.
    pub(super) fn take(read: &mut BytesMut) -> Result<Option<Self>, Error> {
        let not_zmtp = || Error::NotZmtp(read.iter().take(10).copied().collect());
        match read.first() {
            None => return Ok(None),
            // ZMTP 1.0 begins with the length of the identity frame and a zero of flags.
            Some(1) if read.get(1).is_none_or(|&flags| flags == 0) => {
                return Err(Error::OldVersion("1.0"));
            }
            Some(0xff) => {}
            Some(_) => return Err(not_zmtp()),
        }
        if read.get(9).is_some_and(|&last| last & 1 == 0) {
            return Err(Error::OldVersion("1.0"));
        }
        let Some(&major) = read.get(10) else {
            return Ok(None);
        };
        match major {
            0 => return Err(Error::OldVersion("1.0")),
            1 | 2 => return Err(Error::OldVersion("2.0")),
            _ => {}
        }
        if read.len() < GREETING_LEN {
            return Ok(None);
        }
        let greeting = read.split_to(GREETING_LEN);
        let mechanism = greeting.get(12..32).unwrap_or_default();
        let end = mechanism.iter().position(|&byte| byte == 0);
        let name = mechanism.get(..end.unwrap_or(20)).unwrap_or_default();
        if name != b"NULL" {
            return Err(Error::Mechanism(String::from_utf8_lossy(name).into_owned()));
        }
        // The specification says that a later major version must fall back to ours.
        let minor = match (major, greeting.get(11)) {
            (3, Some(0)) => 0,
            _ => 1,
        };
        Ok(Some(Self { minor }))
    }
}

/// Returns our own greeting: ZMTP 3.1, NULL.
pub(super) fn own_greeting() -> [u8; GREETING_LEN] {
    let mut bytes = [0; GREETING_LEN];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[11] = 1;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bytes: &[u8]) -> Result<Option<Greeting>, Error> {
        Greeting::take(&mut BytesMut::from(bytes))
    }

    #[test]
    fn our_own_greeting_is_understood() {
        assert_eq!(take(&own_greeting()), Ok(Some(Greeting { minor: 1 })));
        for end in 0..GREETING_LEN {
            assert_eq!(take(&own_greeting()[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn minor_versions() {
        for (major, minor, expected) in [(3, 0, 0), (3, 1, 1), (3, 7, 1), (4, 0, 1)] {
            let mut bytes = own_greeting();
            (bytes[10], bytes[11]) = (major, minor);
            assert_eq!(take(&bytes), Ok(Some(Greeting { minor: expected })));
        }
    }

    #[test]
    fn an_old_version_is_refused_at_its_first_byte() {
        // The first bytes of libzmq 3 and 2.
        let mut two = own_greeting();
        two[10] = 1;
        assert_eq!(take(&two[..11]), Err(Error::OldVersion("2.0")));
        let mut one = own_greeting();
        one[10] = 0;
        assert_eq!(take(&one[..11]), Err(Error::OldVersion("1.0")));
        assert_eq!(take(&[1, 0]), Err(Error::OldVersion("1.0")));
        assert_eq!(
            take(&[0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
            Err(Error::OldVersion("1.0"))
        );
    }

    #[test]
    fn other_mechanisms_and_other_protocols_are_refused() {
        let mut curve = own_greeting();
        curve[12..17].copy_from_slice(b"CURVE");
        assert_eq!(take(&curve), Err(Error::Mechanism("CURVE".to_owned())));
        for bytes in [&b"GET / HTTP/1.1"[..], &[1, 1]] {
            assert_eq!(
                take(bytes),
                Err(Error::NotZmtp(bytes[..bytes.len().min(10)].to_vec()))
            );
        }
    }
}
