//! The code of a refusal, which says whether the command may have written.

use redis::RedisError;

/// Whether a script may have written before it passed this error on: then its effect is not known. The server, or a script's first command,
/// raises every other code before anything is done. So it does with NOPERM for the script as a whole, which it words in no other way.
pub(super) fn may_have_written(error: &RedisError) -> bool {
    error.code() != Some("NOPERM") && matches!(code_of(error).as_deref(), Some("NOPERM" | "ERR"))
}

/// Whether no script of ours, and no server that is asked for one, gives such an error: what came may be no answer to the request.
pub(super) fn is_strange(code: &str, said: &str) -> bool {
    code == "ERR" && !["script", "Script", "non local key"].iter().any(|words| said.contains(words))
}

/// The code of an error. If the error happened inside of a script, the server words it anew:
///
/// | server | `redis.call` | `redis.pcall` |
/// | --- | --- | --- |
/// | Redis 6 | `ERR Error running script (call to f_..): @user_script:1: @user_script: 1: -OOM ..` | `@user_script: 1: -OOM ..` |
/// | the same, a permission | .. `@user_script: 1: The user executing the script can't ..` | from `@user_script:` on |
/// | Redis 7.0, a permission | `ERR The user executing the script can't ..` | the same |
/// | later ones and Valkey, a permission | `ERR ACL failure in script: User .. has no permissions ..` | the same |
pub(super) fn code_of(error: &RedisError) -> Option<String> {
    Some(worded(error.code()?, error.detail().unwrap_or_default()).to_owned())
}

/// The code in the words of an error that a script caught.
pub(crate) fn code_in(said: &str) -> String {
    let (code, detail) = said.split_once(' ').unwrap_or((said, ""));
    worded(code, detail).to_owned()
}

/// Whether a script was refused a key that the node has sent elsewhere, or never had. There is no code for that:
///
/// | server | says |
/// | --- | --- |
/// | Redis | `ERR Script attempted to access a non local key in a cluster node` |
/// | Valkey | `ERR Attempted to access a non local key in a cluster node` |
pub(super) fn is_of_a_key_elsewhere(said: &str) -> bool {
    said.contains("ttempted to access a non local key in a cluster node")
}

fn worded<'a>(code: &'a str, detail: &str) -> &'a str {
    const WORDED: [(&str, &str); 8] = [
        ("ACL failure in script", "NOPERM"),
        ("The user executing the script can't", "NOPERM"),
        ("NOPERM", "NOPERM"),
        ("WRONGTYPE", "WRONGTYPE"),
        ("OOM", "OOM"),
        ("READONLY", "READONLY"),
        ("MISCONF", "MISCONF"),
        ("NOREPLICAS", "NOREPLICAS"),
    ];
    if !matches!(code, "ERR" | "@user_script:") {
        return code;
    }
    let said = inside(code, detail);
    WORDED.iter().find(|(sign, _)| said.starts_with(sign)).map_or("ERR", |(_, inner)| inner)
}

/// What was said inside of a script, without the script's lines before it. Only the beginning of this is the server's own:
/// behind it there may be names that the caller chose.
fn inside<'a>(code: &str, detail: &'a str) -> &'a str {
    let behind = |words: &'a str| words.split_once(": ").map_or("", |(_, said)| said);
    let is_wrapped = code == "@user_script:" || detail.starts_with("Error running script");
    let mut said = if is_wrapped { behind(detail) } else { detail };
    while let Some(line) = said.strip_prefix("@user_script:") {
        said = behind(line);
    }
    said.trim_start_matches('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error as it is read from the wire.
    fn said(words: &str) -> RedisError {
        redis::parse_redis_value(format!("-{words}\r\n").as_bytes()).unwrap().extract_error().unwrap_err()
    }

    /// What servers of 6.0.9 to 9.1.2 answered, and the code that a caller gets.
    const WORDED: [(&str, &str); 14] = [
        ("ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed", "OOM"),
        ("ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation against a key", "WRONGTYPE"),
        ("ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't", "READONLY"),
        (
            "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
            "NOPERM",
        ),
        ("@user_script: 1: The user executing the script can't access at least one of the keys mentioned", "NOPERM"),
        ("@user_script: 1: -MISCONF Redis is configured to save RDB snapshots", "MISCONF"),
        ("@user_script: 1: -NOREPLICAS Not enough good replicas to write.", "NOREPLICAS"),
        ("@user_script: 1: Write commands are not allowed after non deterministic commands.", "ERR"),
        (
            "ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:1.",
            "NOPERM",
        ),
        (
            "ERR ACL failure in script: User app has no permissions to run the 'del' command script: 1, on @user_script:1.",
            "NOPERM",
        ),
        ("ERR ACL failure in script: No permissions to access a key", "NOPERM"),
        ("ERR ACL failure in script: User ROOM has no permissions to run the 'del' command", "NOPERM"),
        ("ERR unknown command", "ERR"),
        ("ERR Path '$.ROOM.description' does not exist", "ERR"),
    ];

    #[test]
    fn a_script_error_has_its_code_however_a_server_words_it() {
        for (words, expected) in WORDED {
            let code = code_of(&said(words)).unwrap();
            assert_eq!((code.as_str(), code_in(words).as_str()), (expected, expected), "{words}");
            assert_eq!(may_have_written(&said(words)), matches!(expected, "NOPERM" | "ERR"), "{words}");
        }
    }

    /// What servers of 7.0.15 and 9.1.2 answered.
    #[test]
    fn a_key_that_is_elsewhere_is_known_by_the_words_of_each_server() {
        let elsewhere = [
            "ERR Script attempted to access a non local key in a cluster node script: a2e6, on @user_script:1.",
            "ERR Attempted to access a non local key in a cluster node script: on @user_script:1.",
        ];
        assert!(elsewhere.into_iter().all(|words| is_of_a_key_elsewhere(&said(words).to_string())));
        assert!(!WORDED.iter().any(|(words, _)| is_of_a_key_elsewhere(&said(words).to_string())));
    }

    #[test]
    fn a_code_that_is_told_is_not_looked_for_in_the_words() {
        let error = said("NOPERM User OOM has no permissions to run the 'eval' command");
        assert_eq!(code_of(&error).as_deref(), Some("NOPERM"));
        assert!(!may_have_written(&error), "the whole script was refused");
        let error = said("ERR unknown command 'EVALSHA', with args beginning with: '1' 'ROOM:1'");
        assert_eq!(code_of(&error).as_deref(), Some("ERR"));
    }
}
