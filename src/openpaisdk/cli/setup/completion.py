"""``pai completion``: TAB completion scripts for shells."""

from __future__ import annotations

import sys

from openpaisdk.cli.parser import command_parser

# bash splits words at colons: the text before the last colon is already on the command line.
BASH = """\
_pai_complete() {
    local cur="${COMP_LINE:0:COMP_POINT}" IFS=$'\\n' word
    word="${cur##*[[:space:]]}"
    local -a words
    IFS=$' \\t\\n' read -ra words <<< "$cur"
    [[ -z $word ]] && words+=("")
    COMPREPLY=($(pai __complete "${words[@]:1}" 2>/dev/null))
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*:}"}"}")
    fi
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace
    return 0
}
complete -o default -o bashdefault -F _pai_complete pai
"""
ZSH = """\
#compdef pai
_pai() {
    local -a found
    found=("${(@f)$(pai __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[*]}" ]]; then
        compadd -S '' -- ${(M)found:#*/}
        compadd -- ${found:#*/}
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_pai" ]; then _pai "$@"; else compdef _pai pai; fi
"""
FISH = """\
function __pai_complete
    set -l words (commandline -opc)
    set -l found (pai __complete $words[2..-1] (commandline -ct | string collect --allow-empty) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c pai -f -a '(__pai_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(argv: list[str]) -> int:
    """``pai completion bash|zsh|fish``"""
    parser = command_parser(
        "completion",
        "pai completion bash",
        "Completes commands, options, and the names of your jobs, clusters and storages. To enable it in\n"
        "every new shell:\n\n"
        "  bash:  echo 'eval \"$(pai completion bash)\"' >> ~/.bashrc\n"
        "  zsh:   echo 'eval \"$(pai completion zsh)\"' >> ~/.zshrc   (after compinit)\n"
        "  fish:  pai completion fish > ~/.config/fish/completions/pai.fish",
        output=False,
        cluster=False,
    )
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")
    args = parser.parse(argv)
    sys.stdout.write(SCRIPTS[args.shell])
    return 0
