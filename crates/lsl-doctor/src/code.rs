//! What one machine tells the other where nothing connects: 80 bits, as 16 characters for people to carry.
//!
//! Version 3 | tag 8 | heard 8 x 2 | facts 17 | network 8 | session 8 | policy 2 | spare 2 | CRC 16. The checksum
//! comes last, so that it finds every burst of 16 bits: any one wrong character, and any two neighbours exchanged.
//! Spec: doctor §3.4

use std::fmt;

use crate::observe::{Class, Fact, OtherSide, Share};

/// Why something that was typed is no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeError {
    /// It has so many characters.
    Length(usize),
    /// It has a character that no code has.
    Character(char),
    /// The checksum differs.
    Mistyped,
    /// It is of another version of `lsl`.
    Version,
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(
                f,
                "a code has {CHARACTERS} characters, and this has {length}"
            ),
            Self::Character(it) => write!(f, "no code has the character {it:?}"),
            Self::Mistyped => f.write_str("a character is wrong: compare it with the other screen"),
            Self::Version => f.write_str("it is of another version of lsl: update both machines"),
        }
    }
}

impl std::error::Error for CodeError {}

/// Returns the code, in four groups of four.
pub fn encode(other: &OtherSide) -> String {
    let mut bits = Bits(0);
    bits.put(VERSION, 3);
    bits.put(other.tag.into(), 8);
    for class in Class::ALL {
        let share = other.heard.get(&class).copied().unwrap_or_default();
        let number = Share::ALL.iter().position(|it| *it == share);
        bits.put(number.unwrap_or_default() as u128, 2);
    }
    for fact in Fact::ALL {
        bits.put(other.facts.contains(&fact).into(), 1);
    }
    bits.put(other.network.into(), 8);
    bits.put(other.session.into(), 8);
    bits.put((other.policy & 3).into(), 2);
    bits.put(0, SPARE);
    let check = crc16(bits.0);
    bits.put(check.into(), 16);
    let mut text = String::new();
    for at in 0..CHARACTERS {
        if at > 0 && at % 4 == 0 {
            text.push('-');
        }
        let index = bits.0 >> (5 * (CHARACTERS - 1 - at)) & 31;
        text.extend(usize::try_from(index).ok().and_then(|it| ALPHABET.get(it)));
    }
    text
}

/// Reads what was typed: in any case, with any blanks and hyphens, O for 0, I and L for 1.
///
/// # Errors
/// What is wrong with it.
pub fn decode(text: &str) -> Result<OtherSide, CodeError> {
    let typed = text.chars().filter(|it| !it.is_whitespace() && *it != '-');
    let mut bits = Bits(0);
    let mut length = 0;
    for typed in typed {
        let character = match typed.to_ascii_uppercase() {
            'O' => '0',
            'I' | 'L' => '1',
            other => other,
        };
        let value = ALPHABET.iter().position(|it| *it == character);
        let value = value.ok_or(CodeError::Character(typed))?;
        length += 1;
        if length <= CHARACTERS {
            bits.put(value as u128, 5);
        }
    }
    if length != CHARACTERS {
        return Err(CodeError::Length(length));
    }
    let check = bits.take(16);
    if check != u128::from(crc16(bits.0)) {
        return Err(CodeError::Mistyped);
    }
    let spare = bits.take(SPARE);
    let mut other = OtherSide {
        policy: bits.byte(2),
        session: bits.byte(8),
        network: bits.byte(8),
        ..OtherSide::default()
    };
    // From the end on, as they were put.
    for fact in Fact::ALL.into_iter().rev() {
        if bits.take(1) == 1 {
            other.facts.insert(fact);
        }
    }
    for class in Class::ALL.into_iter().rev() {
        let share = Share::ALL.get(usize::from(bits.byte(2)));
        let share = share.copied().unwrap_or_default();
        if share != Share::None {
            other.heard.insert(class, share);
        }
    }
    other.tag = bits.byte(8);
    if bits.take(3) != VERSION || spare != 0 {
        return Err(CodeError::Version);
    }
    Ok(other)
}

/// Returns eight bits of a text, never 0: enough to notice another nonce, network or session.
pub fn hash8(text: &str) -> u8 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    u8::try_from(hash % 255 + 1).unwrap_or(1)
}

/// Bits, of which the last put is the first taken.
struct Bits(u128);

impl Bits {
    fn put(&mut self, value: u128, width: u32) {
        self.0 = self.0 << width | value;
    }

    fn take(&mut self, width: u32) -> u128 {
        let value = self.0 & ((1 << width) - 1);
        self.0 >>= width;
        value
    }

    fn byte(&mut self, width: u32) -> u8 {
        u8::try_from(self.take(width)).unwrap_or(u8::MAX)
    }
}

/// CRC-16/CCITT of 64 bits.
fn crc16(bits: u128) -> u16 {
    (0..64).rev().fold(0xffff, |crc: u16, at| {
        let differs = (crc >> 15 == 1) != (bits >> at & 1 == 1);
        crc << 1 ^ if differs { 0x1021 } else { 0 }
    })
}

const VERSION: u128 = 1;
const SPARE: u32 = 2;
const CHARACTERS: usize = 16;
/// Crockford's base 32: no I, L, O, U.
const ALPHABET: [char; 32] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'J',
    'K', 'M', 'N', 'P', 'Q', 'R', 'S', 'T', 'V', 'W', 'X', 'Y', 'Z',
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::subsequence;

    use super::*;

    fn any_side() -> impl Strategy<Value = OtherSide> {
        let heard = proptest::collection::btree_map(
            proptest::sample::select(&Class::ALL[..]),
            proptest::sample::select(&Share::ALL[1..]),
            0..=Class::ALL.len(),
        );
        let facts = subsequence(&Fact::ALL[..], 0..=Fact::ALL.len());
        (any::<[u8; 3]>(), heard, facts, 0..4_u8).prop_map(|(hashes, heard, facts, policy)| {
            let [tag, network, session] = hashes;
            OtherSide {
                tag,
                heard,
                facts: facts.into_iter().collect(),
                network,
                session,
                policy,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_typed_is_what_was_said(side in any_side()) {
            let code = encode(&side);
            prop_assert_eq!(code.len(), 19);
            prop_assert_eq!(decode(&code), Ok(side.clone()));
            let typed = code.to_ascii_lowercase().replace('-', " ").replace('0', "o").replace('1', "l");
            prop_assert_eq!(decode(&typed), Ok(side));
        }

        #[test]
        fn one_wrong_character_and_two_exchanged_are_refused(side in any_side(), at in 0..16_usize, other in 0..32_usize) {
            let right: Vec<char> = encode(&side).replace('-', "").chars().collect();
            let mut wrong = right.clone();
            wrong[at] = ALPHABET[other];
            if wrong != right {
                prop_assert_eq!(decode(&String::from_iter(&wrong)), Err(CodeError::Mistyped));
            }
            let mut wrong = right.clone();
            wrong.swap(at, (at + 1).min(15));
            if wrong != right {
                prop_assert_eq!(decode(&String::from_iter(&wrong)), Err(CodeError::Mistyped));
            }
        }
    }

    #[test]
    fn what_is_no_code_is_told() {
        let code = encode(&OtherSide::default());
        assert_eq!(code, "4000-0000-0000-0JJP");
        for (typed, expected) in [
            ("", CodeError::Length(0)),
            ("4000", CodeError::Length(4)),
            ("4000-0000-0000-0JJP-0", CodeError::Length(17)),
            ("4000-0000-0000-6V4U", CodeError::Character('U')),
            ("4000-0000-0000-6V4é", CodeError::Character('é')),
        ] {
            assert_eq!(decode(typed), Err(expected), "{typed}");
        }
        let newer = Bits(u128::from(crc16(2 << 61)) | 2 << 77);
        let newer: String = (0..16)
            .map(|at| ALPHABET[(newer.0 >> (75 - 5 * at) & 31) as usize])
            .collect();
        assert_eq!(decode(&newer), Err(CodeError::Version));
    }
}
