//! Failure notices: messages that report a failure to other ranks.

use crate::error::Error;
use crate::message::Message;

/// Returns the text of a message.
pub(crate) fn text(message: &Message) -> String {
    message.as_slice().map_or(String::new(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Encodes an error of rank `rank` on `host`. Errors about lost, exited and failed ranks are preserved; other errors
/// are encoded as a failure of `rank`.
pub(crate) fn encode(error: &Error, rank: usize, host: &str) -> Message {
    let text = match error {
        Error::Lost { rank, host, silent_seconds, last, .. } => {
            format!("lost\n{rank}\n{host}\n{silent_seconds}\n{last}")
        }
        Error::Exited { rank, host, last } => format!("exited\n{rank}\n{host}\n{last}"),
        Error::Failed { rank, host, cause } => format!("failed\n{rank}\n{host}\n{cause}"),
        other => format!("failed\n{rank}\n{host}\n{other}"),
    };
    Message::of(text.as_bytes())
}

/// Decodes a notice of rank `from`. A notice that cannot be decoded is a failure of its sender.
pub(crate) fn decode(from: usize, message: &Message) -> Error {
    let text = text(message);
    parse(&text).unwrap_or_else(|| {
        let (host, cause) =
            ("unknown host".to_string(), format!("it sent an invalid failure notice: {text:?}"));
        Error::Failed { rank: from, host, cause }
    })
}

/// Parses the text of a notice: kind, rank and host, then the cause or the last position, one per line.
fn parse(text: &str) -> Option<Error> {
    let [kind, rank, host, rest] = text.splitn(4, '\n').collect::<Vec<_>>().try_into().ok()?;
    let (rank, host) = (rank.parse().ok()?, host.to_string());
    match kind {
        "failed" => Some(Error::Failed { rank, host, cause: rest.to_string() }),
        "exited" => Some(Error::Exited { rank, host, last: rest.to_string() }),
        "lost" => {
            let (silent, last) = rest.split_once('\n')?;
            let (silent_seconds, last) = (silent.parse().ok()?, last.to_string());
            Some(Error::Lost { rank, host, silent_seconds, last, waiting_for: None })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_decoded_as_they_were_encoded() {
        let host = || "node7".to_string();
        let last = "epoch 3, layer 1, forward".to_string();
        let exited = Error::Exited { rank: 3, host: host(), last: last.clone() };
        let lost = Error::Lost { rank: 2, host: host(), silent_seconds: 31, last, waiting_for: None };
        let failed =
            Error::Failed { rank: 1, host: host(), cause: "disk full\n  help: free some".to_string() };
        for error in [exited, lost, failed] {
            assert_eq!(decode(5, &encode(&error, 0, "here")), error);
        }
        let size = Error::Size { message: "x".into(), bytes: 1, wanted: "2".into() };
        let expected = Error::Failed { rank: 4, host: host(), cause: size.to_string() };
        assert_eq!(decode(4, &encode(&size, 4, "node7")), expected);
    }

    #[test]
    fn damaged_notices_are_failures_of_their_sender() {
        for damaged in ["", "lost\n1\nhost\nNaN\nposition", "unknown\n1\nhost\ncause"] {
            let decoded = decode(3, &Message::of(damaged.as_bytes()));
            assert!(matches!(decoded, Error::Failed { rank: 3, .. }), "{decoded}");
        }
    }
}
