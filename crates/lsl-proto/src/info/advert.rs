//! An outlet's announcement of its encryption: `<lsl_secure …/>`, the last child of `<info>`. It is
//! not authenticated. Spec: LSS/1 §7.1.

use super::StreamInfo;
use crate::xml::ElementRef;

/// An outlet's announcement that it encrypts. A hint: a forged one causes at worst a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SecurityAdvert {
    /// `required` (nothing without encryption) or `migrate`; other texts are possible.
    pub policy: String,
    /// Fingerprint of the outlet's key, as it claims.
    pub fingerprint: Option<String>,
    /// Fingerprint of the key that it will use next, as it claims.
    pub next_fingerprint: Option<String>,
    /// Whether discovery shows only the shape and the ports of the stream.
    pub minimal: bool,
}

impl StreamInfo {
    /// Returns the announcement of encryption, if this info was received with one.
    pub fn security_advert(&self) -> Option<SecurityAdvert> {
        let document = self.document();
        let info = document.child(document.root(), "info")?;
        let element = ElementRef::new(document, info)?
            .children_named(ELEMENT)
            .last()?;
        let text = |name: &[u8]| {
            let mut attributes = element.attributes().iter();
            let attribute = attributes.find(|attribute| attribute.name == name)?;
            Some(String::from_utf8_lossy(&attribute.value).into_owned())
        };
        Some(SecurityAdvert {
            policy: text(b"policy").unwrap_or_default(),
            fingerprint: text(b"fp"),
            next_fingerprint: text(b"fp_next"),
            minimal: text(b"mode").is_some_and(|mode| mode == "minimal"),
        })
    }
}

const ELEMENT: &str = "lsl_secure";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChannelFormat;

    fn read(advert: &str) -> Option<SecurityAdvert> {
        let mut info = StreamInfo::new("n", "t", 1, 1.0, ChannelFormat::Int8, "s").unwrap();
        info.reset_uid("u");
        let text = String::from_utf8(info.to_shortinfo_xml()).unwrap();
        let text = text
            .replace("</info>", &format!("{advert}</info>"))
            .replace("<uid></uid>", "<uid>u</uid>")
            .replace("<uid />", "<uid>u</uid>");
        StreamInfo::from_xml(text.as_bytes())
            .unwrap()
            .security_advert()
    }

    #[test]
    fn an_advert_is_read_as_far_as_it_goes() {
        assert_eq!(read(""), None);
        assert_eq!(read("<lsl_secure/>"), Some(SecurityAdvert::default()));
        let full = read(
            r#"<lsl_secure v="1" policy="required" fp="SHA256:a" fp_next="SHA256:b" mode="minimal"/>"#,
        );
        let expected = SecurityAdvert {
            policy: "required".into(),
            fingerprint: Some("SHA256:a".into()),
            next_fingerprint: Some("SHA256:b".into()),
            minimal: true,
        };
        assert_eq!(full, Some(expected));
        let open = read(r#"<lsl_secure policy="migrate" mode="open"/>"#).unwrap();
        assert_eq!((open.policy.as_str(), open.minimal), ("migrate", false));
        // The description belongs to the user, whatever it contains.
        assert_eq!(read("<desc><lsl_secure/></desc>"), None);
        // The outlet's own comes last.
        let two = read(r#"<lsl_secure policy="a"/><lsl_secure policy="b"/>"#).unwrap();
        assert_eq!(two.policy, "b");
    }
}
