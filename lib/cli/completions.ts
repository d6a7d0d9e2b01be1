import { choicesOf, type Command, COMMON, type Flag, help, pathOf } from "./arguments.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;

/** The options of the program itself. */
const TOP = ["--help", "--version"];

/**
 * `rabbit completions`
 *
 * @param commands all commands, this one too: read when the command runs
 */
export function completionsCommand(commands: readonly Command[]): Command {
  return {
    name: "completions",
    summary: "print a script that completes the command line in a shell",
    positionals: [{ name: SHELLS.join("|"), help: "the shell" }],
    flags: [],
    example: "rabbit completions bash > ~/.local/share/bash-completion/completions/rabbit",
    run({ positionals }, out) {
      out.text("script", completions(positionals[0] as typeof SHELLS[number], commands));
      return Promise.resolve(0);
    },
  };
}

/** The completion script for a shell, without a line's end after the last one. */
export function completions(shell: typeof SHELLS[number], commands: readonly Command[]): string {
  return { bash, zsh, fish }[shell](commands);
}

function flagsOf(command: Command): Flag[] {
  return [...command.flags, ...COMMON];
}

/** A text in single quotes, as the three shells read it. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

// ---------------------------------------------------------------- bash

function bash(commands: readonly Command[]): string {
  const values = commands.flatMap((command) =>
    command.flags.flatMap(({ name, value, path }) =>
      value === undefined ? [] : [`    ${command.name}:--${name}) ${bashValue(value, path)}return ;;`]
    )
  );
  const rest = commands.flatMap((command) => {
    const words = flagsOf(command).map(({ name }) => `--${name}`);
    const [first] = command.positionals;
    return [
      `    ${command.name}:-*) _rabbit_words ${quoted(words.join(" "))} ;;`,
      ...(first === undefined ? [] : [`    ${command.name}:*) ${bashValue(first.name, first.path)};;`]),
    ];
  });
  return `# Completion of rabbit in bash 4 or later.
_rabbit_words() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}
_rabbit_paths() {
  mapfile -t COMPREPLY < <(compgen "$1" -- "$current")
  compopt -o filenames 2>/dev/null
}
_rabbit() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]} command=\${COMP_WORDS[1]}
  # bash takes --flag=value for three words.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=\${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _rabbit_words ${quoted([...commands.map(({ name }) => name), ...TOP].join(" "))}
    return
  fi
  case $command:$previous in
${values.join("\n")}
  esac
  case $command:$current in
${rest.join("\n")}
  esac
}
complete -F _rabbit rabbit`;
}

function bashValue(value: string, path?: boolean): string {
  const choices = choicesOf(value);
  if (choices.length > 0) return `_rabbit_words ${quoted(choices.join(" "))}; `;
  const kind = pathOf(value, path);
  return kind === undefined ? "" : `_rabbit_paths ${kind === "directory" ? "-d" : "-f"}; `;
}

// ---------------------------------------------------------------- zsh

function zsh(commands: readonly Command[]): string {
  const names = commands.map(({ name, summary }) => `      ${quoted(`${name}:${summary.replaceAll(":", "\\:")}`)}`);
  const cases = commands.map((command) => {
    const specs = [
      ...flagsOf(command).map(zshFlag),
      ...command.positionals.map(({ name, path, optional, many }) =>
        `${many ? "*" : ""}${optional ? "::" : ":"}${name.replaceAll(":", "\\:")}:${zshValue(name, path)}`
      ),
    ];
    return `    ${command.name})\n      _arguments ${
      specs.map((spec) => `\\\n        ${quoted(spec)}`).join(" ")
    }\n      ;;`;
  });
  return `#compdef rabbit
# Completion of rabbit in zsh: a file _rabbit in a directory of fpath, or sourced after compinit.
_rabbit() {
  if ((CURRENT == 2)); then
    local -a commands=(
${names.join("\n")}
      ${TOP.map(quoted).join(" ")}
    )
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
${cases.join("\n")}
  esac
}
if [[ $funcstack[1] == _rabbit ]]; then _rabbit "$@"; else compdef _rabbit rabbit; fi`;
}

function zshFlag(flag: Flag): string {
  const description = help(flag).replace(/[[\]\\:]/g, "\\$&");
  if (flag.value === undefined) return `--${flag.name}[${description}]`;
  return `--${flag.name}=[${description}]:${flag.value.replaceAll(":", "\\:")}:${zshValue(flag.value, flag.path)}`;
}

function zshValue(value: string, path?: boolean): string {
  const choices = choicesOf(value);
  if (choices.length > 0) return `(${choices.join(" ")})`;
  return { directory: "_files -/", file: "_files", none: " " }[pathOf(value, path) ?? "none"];
}

// ---------------------------------------------------------------- fish

function fish(commands: readonly Command[]): string {
  const lines = commands.flatMap((command) => {
    const complete = `complete -c rabbit -n '__rabbit_command ${command.name}'`;
    const [first] = command.positionals;
    return [
      `complete -c rabbit -n __rabbit_first -a ${command.name} -d ${quoted(command.summary)}`,
      ...flagsOf(command).map((flag) =>
        `${complete} -l ${flag.name}${fishValue(flag.value, flag.path)} -d ${quoted(help(flag))}`
      ),
      ...(first === undefined
        ? []
        : [complete + fishValue(first.name, first.path).replace(" -r", "").replace(" -x", "")]),
    ];
  });
  return `# Completion of rabbit in fish.
function __rabbit_first
    test (count (commandline -opc)) -eq 1
end
function __rabbit_command
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]
end
complete -c rabbit -f
${TOP.map((flag) => `complete -c rabbit -n __rabbit_first -l ${flag.slice(2)}`).join("\n")}
${lines.join("\n")}`;
}

function fishValue(value: string | undefined, path?: boolean): string {
  if (value === undefined) return "";
  const choices = choicesOf(value);
  if (choices.length > 0) return ` -x -a ${quoted(choices.join(" "))}`;
  return { directory: ` -x -a '(__fish_complete_directories)'`, file: " -r -F", none: " -x" }[
    pathOf(value, path) ?? "none"
  ];
}
