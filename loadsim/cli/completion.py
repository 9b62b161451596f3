"""`loadsim completion`: print a script with which a shell completes commands, options and their values."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping

from loadsim.cli import parser as whole_parser
from loadsim.cli.command_tree import DIRECTORIES, FILES, Argument, Command, command_tree


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=run_completion)


def run_completion(args: argparse.Namespace) -> int:
    print(SCRIPTS[args.shell](command_tree(whole_parser())), end="")
    return 0


def _quoted(text: str) -> str:
    """Return a text in single quotes, for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _patterns(keys: Iterable[str]) -> str:
    return "|".join(map(_quoted, keys))


def _by_values(top: Command) -> Mapping[tuple[tuple[str, ...], str, str], list[str]]:
    """Return the options that take the same values: keys are words, paths and metavar, values "COMMAND --option"."""
    found: dict[tuple[tuple[str, ...], str, str], list[str]] = {}
    for command in top.all():
        for option in command.options:
            if option.value:
                key = (option.words, option.paths, "" if option.words or option.paths else option.value)
                found.setdefault(key, []).extend(f"{command.name} {flag}" for flag in option.flags)
    return found


def _words(arguments: Iterable[Argument]) -> list[str]:
    return [word for each in arguments for word in each.words]


def _paths(arguments: Iterable[Argument]) -> str:
    """Return `FILES` if one of these may be a file, `DIRECTORIES` if only directories, "" if neither."""
    kinds = {each.paths for each in arguments}
    return FILES if FILES in kinds else DIRECTORIES if DIRECTORIES in kinds else ""


def _flags(command: Command) -> list[str]:
    return [flag for option in command.options for flag in option.flags]


# --- bash ---------------------------------------------------------------------------------------------------------

_BASH = """\
# Completion of loadsim in bash, by `loadsim completion bash`. Source it, or save it as
# ~/.local/share/bash-completion/completions/loadsim
_loadsim_add() {
    local line
    while IFS= read -r line; do COMPREPLY+=("$line"); done
}

_loadsim() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local at="" options="" words="" paths="" index IFS=$' \\t\\n'
    for (( index = 1; index < COMP_CWORD; index++ )); do
        case "$at ${COMP_WORDS[index]}" in
            @COMMANDS@) at="${at:+$at }${COMP_WORDS[index]}" ;;
        esac
    done
    case "$at" in
@OPERANDS@
    esac
    # --option=value is three words
    if [[ $word == "=" ]]; then
        word=""
    elif [[ $previous == "=" ]]; then
        previous=${COMP_WORDS[COMP_CWORD-2]}
    fi
    case "$at $previous" in
@VALUES@
    esac
    COMPREPLY=()
    if [[ $word == -* ]]; then
        words=$options paths=""
    fi
    _loadsim_add < <(compgen -W "$words" -- "$word")
    if [[ $paths == files ]]; then
        compopt -o filenames 2> /dev/null
        _loadsim_add < <(compgen -f -- "$word")
    elif [[ $paths == directories ]]; then
        compopt -o filenames 2> /dev/null
        _loadsim_add < <(compgen -d -- "$word")
    fi
}

complete -F _loadsim loadsim
"""


def bash(top: Command) -> str:
    """Return the script for bash, from version 3.2 on."""
    operands = []
    for each in top.all():
        words = " ".join([*(verb.path[-1] for verb in each.verbs), *_words(each.operands)])
        settings = f"options={_quoted(' '.join(_flags(each)))} words={_quoted(words)} paths={_paths(each.operands)}"
        operands.append(f"        {_quoted(each.name)}) {settings} ;;")
    values = [
        f"        {_patterns(keys)}) options='' words={_quoted(' '.join(words))} paths={paths} ;;"
        for (words, paths, _), keys in _by_values(top).items()
    ]
    return _filled(_BASH, top, operands, values)


def _filled(template: str, top: Command, operands: list[str], values: list[str]) -> str:
    commands = [f"{' '.join(each.path[:-1])} {each.path[-1]}" for each in top.all() if each.path]
    return (
        template.replace("@COMMANDS@", _patterns(commands))
        .replace("@OPERANDS@", "\n".join(operands))
        .replace("@VALUES@", "\n".join(values))
    )


# --- zsh ----------------------------------------------------------------------------------------------------------

_ZSH = """\
#compdef loadsim
# Completion of loadsim in zsh, by `loadsim completion zsh`. Save it as _loadsim in a directory of $fpath.
_loadsim() {
    local at="" previous=${words[CURRENT-1]} paths="" word
    local -a options verbs names
    for word in "${(@)words[2,CURRENT-1]}"; do
        case "$at $word" in
            @COMMANDS@) at="${at:+$at }$word" ;;
        esac
    done
    if [[ $PREFIX == --*=* ]]; then
        previous=${PREFIX%%=*}
        compset -P '*='
    fi
    case "$at $previous" in
@VALUES@
    esac
    case "$at" in
@OPERANDS@
    esac
    if [[ $PREFIX == -* ]]; then
        _describe -o option options
        return
    fi
    (( $#verbs )) && _describe command verbs
    (( $#names )) && compadd -- $names
    [[ $paths == files ]] && _files
    [[ $paths == directories ]] && _files -/
    return 0
}

if [[ ${funcstack[1]} == _loadsim ]]; then
    _loadsim "$@"
else
    compdef _loadsim loadsim
fi
"""


def zsh(top: Command) -> str:
    """Return the script for zsh."""
    operands = []
    for each in top.all():
        options = " ".join(_quoted(f"{flag}:{option.help}") for option in each.options for flag in option.flags)
        verbs = " ".join(_quoted(f"{verb.path[-1]}:{verb.about}") for verb in each.verbs)
        names = " ".join(map(_quoted, _words(each.operands)))
        settings = f"options=({options}) verbs=({verbs}) names=({names}) paths={_paths(each.operands)}"
        operands.append(f"        {_quoted(each.name)}) {settings} ;;")
    values = []
    for (words, paths, metavar), keys in _by_values(top).items():
        actions = [f"compadd -- {' '.join(map(_quoted, words))}"] if words else []
        actions += {FILES: ["_files"], DIRECTORIES: ["_files -/"], "": []}[paths]
        actions += [f"_message {_quoted(metavar)}"] if metavar else []
        values.append(f"        {_patterns(keys)}) {'; '.join(actions)}; return ;;")
    return _filled(_ZSH, top, operands, values)


# --- fish ---------------------------------------------------------------------------------------------------------

_FISH = """\
# Completion of loadsim in fish, by `loadsim completion fish`. Save it as ~/.config/fish/completions/loadsim.fish
function __loadsim_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        switch "$at $word"
            case @COMMANDS@
                set at (string trim -- "$at $word")
        end
    end
    test "$at" = "$argv[1]"
end

complete -c loadsim -f
@OPERANDS@
"""


def fish(top: Command) -> str:
    """Return the script for fish."""
    lines = []
    for each in top.all():
        here = f"complete -c loadsim -n {_fish(f'__loadsim_at {_fish(each.name)}')}"
        lines += [f"{here} -a {_fish(verb.path[-1])} -d {_fish(verb.about)}" for verb in each.verbs]
        for option in each.options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
            lines.append(f"{here} {flags} {_fish_values(option)}-d {_fish(option.help)}")
        lines += [f"{here} {_fish_values(each)}".rstrip() for each in each.operands if each.words or each.paths]
    commands = " ".join(_fish(f"{' '.join(each.path[:-1])} {each.path[-1]}") for each in top.all() if each.path)
    return _FISH.replace("@COMMANDS@", commands).replace("@OPERANDS@", "\n".join(lines))


def _fish_values(argument: Argument) -> str:
    """Return the options of `complete` for the values of an argument."""
    required = "-r " if argument.flags and argument.value else ""
    words = list(argument.words)
    if argument.paths == DIRECTORIES:
        words.append("(__fish_complete_directories)")
    files = "-F " if argument.paths == FILES else "-f " if required else ""
    return f"{required}{files}" + (f"-a {_fish(' '.join(words))} " if words else "")


def _fish(text: str) -> str:
    """Return a text in single quotes, for fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: Mapping[str, Callable[[Command], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
