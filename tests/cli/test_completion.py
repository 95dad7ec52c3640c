"""`unseen --install-completion` writes what the shell reads."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from unseen.cli import app

CHECK = {"bash": ["-n"], "zsh": ["-n"], "fish": ["--no-execute"]}
ASK = """
source "$1"
COMP_WORDS=(unseen "$2"); COMP_CWORD=1; COMP_LINE="unseen $2"; COMP_POINT=${#COMP_LINE}
name=$(complete -p unseen | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$name" unseen "$2" unseen
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The script of each shell."""
    folder = tmp_path_factory.mktemp("completion")
    return {
        shell: app.install_completion(shell=shell, output=folder / shell, add_to_startup=False)
        for shell in CHECK
    }


@pytest.mark.parametrize("shell", CHECK)
def test_script_names_commands_and_options_and_is_valid(scripts, shell):
    text = scripts[shell].read_text()
    assert all(word in text for word in ("serve", "export", "max-batch", "false-alarm-rate"))
    if shutil.which(shell):
        subprocess.run([shell, *CHECK[shell], str(scripts[shell])], check=True)


def test_bash_completes_a_command(scripts):
    command = ["bash", "-c", ASK, "bash", str(scripts["bash"]), "ser"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["serve"]


def test_option_installs_for_the_shell_of_the_user(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    app(["--install-completion", "--shell", "bash"], exit_on_error=False,
        result_action="return_value")  # fmt: skip
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("serve" in path.read_text() for path in written)
    assert str(tmp_path) in capsys.readouterr().out
