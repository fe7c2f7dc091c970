"""Completion of the command line: the scripts for shells, and the completions they request.

A script calls the program with `_S3K_COMPLETE` set and the command line up to the cursor in
`S3K_COMPLETION_LINE`. Each line of the output is a kind (`plain`, `file` or `dir`, which the shell
completes itself), a value and a summary, separated by tabs. Errors are not shown, and the time is
bounded.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import warnings
from types import FrameType
from typing import Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

__all__ = ["BREAKS", "LINE", "SCRIPTS", "VARIABLE", "respond"]

VARIABLE: Final = "_S3K_COMPLETE"
LINE: Final = "S3K_COMPLETION_LINE"
BREAKS: Final = "S3K_COMPLETION_BREAKS"
"""The characters at which readline splits words in bash."""
_SPECIAL: Final = re.compile(r"[\s!\"#$&'()*;<>?\[\\\]^`{|}]")
"""Characters with a special meaning in a shell."""
_LIMIT: Final = 4.0
"""Seconds after which the process ends without an answer."""

_BASH: Final = r"""# Completion of s3k for bash 4.4 and later:
#   source <(s3k completion bash)
_s3k_completion() {
    local IFS=$'\n' item kind value
    local line="${COMP_LINE:0:COMP_POINT}" word="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    for item in $(_S3K_COMPLETE=bash S3K_COMPLETION_LINE="$line" \
        S3K_COMPLETION_BREAKS="$COMP_WORDBREAKS" "$1" 2>/dev/null); do
        kind="${item%%$'\t'*}"
        value="${item#*$'\t'}"
        value="${value%%$'\t'*}"
        case "$kind" in
            file | dir)
                (( ${#COMPREPLY[@]} )) || compopt -o filenames
                COMPREPLY+=($(compgen -A "${kind/dir/directory}" -- "$word"))
                ;;
            *)
                [[ $value == */ ]] && compopt -o nospace
                COMPREPLY+=("$value")
                ;;
        esac
    done
}
complete -o nosort -F _s3k_completion s3k
"""
_ZSH: Final = r"""#compdef s3k
# Completion of s3k for zsh: source <(s3k completion zsh), or a file _s3k in a directory of $fpath.
_s3k() {
    local -a answer parents leaves
    local item kind value
    local line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    answer=("${(@f)$(_S3K_COMPLETE=zsh S3K_COMPLETION_LINE="$line" $words[1] 2>/dev/null)}")
    for item in $answer; do
        kind="${item%%$'\t'*}"
        value="${${item#*$'\t'}%%$'\t'*}"
        case "$kind" in
            file) _files ;;
            dir) _files -/ ;;
            *) if [[ $value == */ ]]; then parents+=("$value"); else leaves+=("$value"); fi ;;
        esac
    done
    (( $#parents )) && compadd -S '' -a parents
    (( $#leaves )) && compadd -a leaves
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _s3k "$@"; else compdef _s3k s3k; fi
"""
_FISH: Final = r"""# Completion of s3k for fish 3.1 and later: s3k completion fish | source
function __s3k_complete
    set -l line (commandline -cp)
    for item in (_S3K_COMPLETE=fish S3K_COMPLETION_LINE="$line" s3k 2>/dev/null)
        set -l parts (string split \t -- $item)
        switch $parts[1]
            case file
                __fish_complete_path $parts[2]
            case dir
                __fish_complete_directories $parts[2]
            case '*'
                printf '%s\t%s\n' $parts[2] $parts[3]
        end
    end
end
complete -c s3k -f -a '(__s3k_complete)'
"""
SCRIPTS: Final = {"bash": _BASH, "fish": _FISH, "zsh": _ZSH}
"""By shell: what `s3k completion` prints."""


class _LineCompletion(ShellComplete):
    """Completion of the line in the environment, for every shell."""

    name = "line"
    source_template = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the last one, without the program's name, and the last one."""
        line = os.environ.get(LINE, "")
        words = split_arg_string(line)
        if not words or (line[-1].isspace() and not line.endswith("\\ ")):
            words.append("")
        return words[1:-1], words[-1]

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        """The completions, after the option in `--option=value`."""
        found = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not equals or not option.startswith("--"):
            return found
        return [CompletionItem(f"{option}={each.value}", each.type, each.help) for each in found]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Kind, value and summary."""
        value = str(item.value)
        if BREAKS in os.environ and item.type == "plain":
            value = _for_readline(value, os.environ.get(LINE, ""), os.environ[BREAKS])
        return f"{item.type}\t{value}\t{item.help or ''}"


def _for_readline(value: str, line: str, breaks: str) -> str:
    """The part of a value that replaces the word of readline: what follows the last character of
    `breaks` in the word that is typed, with backslashes; the whole value in quotes."""
    typed = split_arg_string(line)[-1:] or [""]
    if _in_quotes(line):
        return value
    at = max(typed[0].rfind(each) for each in ":=") + 1 if ":" in breaks else 0
    return _SPECIAL.sub(r"\\\g<0>", value[at:] if value.startswith(typed[0][:at]) else value)


def _in_quotes(line: str) -> bool:
    """Whether the line ends inside quotes."""
    quote = ""
    characters = iter(line)
    for each in characters:
        if each == "\\" and quote != "'":
            next(characters, None)
        elif each == quote:
            quote = ""
        elif not quote and each in "'\"":
            quote = each
    return bool(quote)


def respond(root: click.Command) -> int:
    """Write the completions of the line in the environment; returns an exit code. Errors are
    not shown."""
    warnings.simplefilter("ignore")
    logging.disable()
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, _LIMIT)
    try:
        answer = _LineCompletion(root, {}, "s3k", VARIABLE).complete()
    # The edge: a message would be written over the line that is being typed.
    except Exception:  # noqa: BLE001
        return 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    lines = (line for line in answer.split("\n") if line.isprintable() or "\t" in line)
    sys.stdout.write("".join(f"{line}\n" for line in lines if line))
    return 0


def _give_up(_: int, __: FrameType | None) -> NoReturn:
    os._exit(1)
