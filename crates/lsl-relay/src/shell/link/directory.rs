//! Reads what the relay at the other end of a link tells of its streams. Spec: relay §5.1, §7.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use lsl_core::StreamInfo;
use lsl_core::relay::{OpenSubstream, Substream};
use lsl_proto::wire::directory::{
    MAX_DOCUMENT_BYTES, Record, RecordParser, SourceClock, WatchRequest, Withdrawal,
};
use lsl_proto::wire::request::relayed_fullinfo_request;

use super::Link;
use crate::book::{Reason, Uid};

/// Record of a directory, as one may keep it.
#[derive(Debug)]
pub(in crate::shell) enum DirectoryNews {
    Here(Uid, Box<StreamInfo>),
    Gone(Uid, Reason),
    Clock(Uid, SourceClock),
}

/// Reads the directory to its end, which is told. `take` is given all that comes at a time.
pub(in crate::shell) async fn read_directory(
    link: &Link,
    mut take: impl FnMut(Vec<DirectoryNews>),
) -> String {
    let substream = match link.open(WatchRequest::default().to_bytes()) {
        Ok(substream) => substream,
        Err(error) => return error.to_string(),
    };
    let (mut parser, mut buffer) = (RecordParser::new(), vec![0; READ_BYTES]);
    loop {
        let read = tokio::time::timeout(SILENCE, read(&*substream, &mut buffer));
        let bytes = match read.await {
            Ok(Ok(0)) => return "it was ended".to_owned(),
            Ok(Ok(count)) => buffer.get(..count).unwrap_or_default(),
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "no sign of life".to_owned(),
        };
        let (mut rest, mut news) = (bytes, Vec::new());
        loop {
            match parser.next(&mut rest) {
                Ok(Some(record)) => news.extend(parse(record)),
                Ok(None) => break,
                Err(error) => return error.to_string(),
            }
        }
        if !news.is_empty() {
            take(news);
        }
    }
}

/// Asks once for all streams, those included that are over: `take` is given each, with the bytes of its document.
pub(in crate::shell) async fn read_past(
    link: &Link,
    mut take: impl FnMut(Uid, StreamInfo, usize),
) -> io::Result<()> {
    let request = WatchRequest {
        once: true,
        past: true,
        query: Vec::new(),
    };
    let substream = link.open(request.to_bytes())?;
    let (mut parser, mut buffer) = (RecordParser::new(), vec![0; READ_BYTES]);
    loop {
        let count = read(&*substream, &mut buffer).await?;
        let mut rest = buffer.get(..count).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        while let Some(record) = parser.next(&mut rest).map_err(io::Error::other)? {
            if let Record::Stream { xml, .. } = record
                && let len = xml.len()
                && let Some(DirectoryNews::Here(uid, info)) = parse(record)
            {
                take(uid, *info, len);
            }
        }
    }
}

/// Asks for the document of one stream; `None` if there is none, or it comes too slowly.
pub(in crate::shell) async fn read_document(link: &Link, uid: &Uid) -> Option<StreamInfo> {
    let request = relayed_fullinfo_request(uid.as_bytes());
    let substream = link.open(request).ok()?;
    let (mut document, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    let reading = async {
        loop {
            let count = read(&*substream, &mut buffer).await.ok()?;
            match buffer.get(..count)? {
                b"" => return Some(()),
                bytes => document.extend_from_slice(bytes),
            }
            if document.len() > MAX_DOCUMENT_BYTES {
                return None;
            }
        }
    };
    tokio::time::timeout(SILENCE, reading).await.ok()??;
    StreamInfo::from_xml(&document).ok()
}

async fn read(substream: &dyn Substream, buffer: &mut [u8]) -> io::Result<usize> {
    poll_fn(|context| substream.poll_read(Some(context), buffer)).await
}

/// Parses a record; `None` for a sign of life, and for a document that is none.
fn parse(record: Record<'_>) -> Option<DirectoryNews> {
    // Uids are words of printable ASCII.
    let text = |uid| std::str::from_utf8(uid).ok().map(Uid::from);
    Some(match record {
        Record::Stream { uid, xml } => match StreamInfo::from_xml(xml) {
            Ok(info) => DirectoryNews::Here(text(uid)?, Box::new(info)),
            Err(_) => DirectoryNews::Gone(text(uid)?, Reason::Lost),
        },
        Record::Gone { uid, reason } => {
            let reason = match reason {
                Withdrawal::Ended => Reason::Ended,
                Withdrawal::Lost => Reason::Lost,
                Withdrawal::Hidden => Reason::Hidden,
            };
            DirectoryNews::Gone(text(uid)?, reason)
        }
        Record::Clock { uid, clock } => DirectoryNews::Clock(text(uid)?, clock),
        Record::Known => return None,
    })
}

const READ_BYTES: usize = 64 * 1024;

/// Silence after which a directory is lost: three signs of life.
const SILENCE: Duration = Duration::from_secs(30);
