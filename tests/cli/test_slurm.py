"""`gear slurm`: templates with their lines set, and what a cluster cannot give is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("click")

from gear.cli.app import main
from gear.cli.slurm.cluster import gpus, parse, seconds
from gear.cli.slurm.template import Template

SLURM = Path(__file__).parents[2] / "slurm"
TEMPLATES = sorted(path.stem for path in SLURM.glob("*.sbatch"))

# As `sinfo --noheader --exact --format=%P|%a|%l|%s|%D|%c|%G|%T` prints it.
SINFO = """\
standard*|up|1-00:00:00|1-infinite|30|64|(null)|idle
standard*|up|1-00:00:00|1-infinite|2|64|(null)|drained
gpu|up|2:00:00|1-4|6|96|gpu:h100:4(S:0-1),gpu:a100:2|mixed
gpu|up|2:00:00|1-4|2|96|gpu:h100:4(S:0-1)|down*
long|up|infinite|1-infinite|4|32+|gpu:8|idle
night|down|8:00:00|1-infinite|30|64|(null)|idle
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with stand-ins: sinfo tells of SINFO, sbatch writes down what it was given, and with
    --test-only takes all but what `never` says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "told").write_text(SINFO)
    put(folder / "sinfo", f"cat '{folder}/told'")
    put(
        folder / "sbatch",
        f"""if [ "$1" = --test-only ]; then
  cp "$2" '{folder}/tested'
  [ ! -e '{folder}/never' ] || {{ cat '{folder}/never' >&2; exit 1; }}
  echo 'sbatch: Job 7 to start at 2026-11-26T05:00:00' >&2; exit 0
fi
cp "$1" '{folder}/script'; echo "${{1##*/}}" >'{folder}/words'
shift; printf '%s\\n' "$@" >>'{folder}/words'; echo 'Submitted batch job 7'""",
    )
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("GEAR_HOME", raising=False)
    return folder


def put(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#SBATCH")]


# ---- what is printed ----


@pytest.mark.parametrize("name", TEMPLATES)
def test_render_changes_nothing_by_itself(cluster, capsys, name):
    wanted = ["--set", "partition=gpu"] if name in ("1gpu", "actors-learner") else []
    assert main(["slurm", "render", name, *wanted]) == 0
    text = (SLURM / f"{name}.sbatch").read_text()
    if wanted:
        text = text.replace("##SBATCH --partition=PARTITION", "#SBATCH --partition=gpu", 1)
    assert capsys.readouterr().out == text
    assert len(text.splitlines()) <= 60


def test_render_sets_lines(cluster, capsys):
    words = "--nodes 3 --time 90 --set partition=gpu --set gres=gpu:h100:4 --set exclusive"
    words += " --set ntasks-per-node=4 --set mail-type=END"
    assert main(["slurm", "render", "multinode-srun", *words.split()]) == 0
    text = capsys.readouterr().out
    found = lines(text)
    assert "#SBATCH --nodes=3" in found
    assert "#SBATCH --time=90" in found
    assert "#SBATCH --partition=gpu" in found
    assert found.count("#SBATCH --mail-type=END") == 1
    assert [line.split("#")[1].strip() for line in found if "gres" in line] == [
        "SBATCH --gres=gpu:h100:4"
    ]
    assert any(line.startswith("#SBATCH --exclusive ") for line in found)
    assert any(line.startswith("#SBATCH --ntasks-per-node=4    # ranks") for line in found)
    original = (SLURM / "multinode-srun.sbatch").read_text().splitlines()
    assert text.splitlines()[-12:] == original[-12:]


def test_parts_of_a_heterogeneous_job_are_set_apart(cluster, capsys):
    words = "--set partition=gpu --set 1:nodes=5 --set 1:partition=standard"
    assert main(["slurm", "render", "actors-learner", *words.split()]) == 0
    first, second = Template(capsys.readouterr().out).parts
    assert (first["nodes"], first["partition"], first["gres"]) == ("1", "gpu", "gpu:1")
    assert (second["nodes"], second["partition"]) == ("5", "standard")
    assert "gres" not in second


def test_short_options_by_set(cluster, capsys):
    words = ["--set", "-J=mine", "--set", "-C=haswell", "--set", "-k"]
    assert main(["slurm", "render", "1node", *words]) == 0
    found = lines(capsys.readouterr().out)
    assert "#SBATCH --job-name=mine" in found  # in place of the template's
    assert "#SBATCH --job-name=gear" not in found
    assert {"#SBATCH -C haswell", "#SBATCH -k"} <= set(found)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a b", '"a b"'),
        (" ", '" "'),
        ("it's", '"it\'s"'),
        ('say "no"', r'"say \"no\""'),
        ("back\\slash", r'"back\\slash"'),
        ("a#b", '"a#b"'),
        ("a # b", '"a # b"'),
        ("gpu:h100:4", "gpu:h100:4"),
        ("%x-%j.out", "%x-%j.out"),
        ("node[1-3,7]", "node[1-3,7]"),
        ("haswell&bigmem|skylake*2", "haswell&bigmem|skylake*2"),
    ],
)
def test_values_are_quoted_where_they_have_to_be(cluster, capsys, value, written):
    words = ["--set", f"comment={value}", "--set", f"-J={value}"]
    assert main(["slurm", "render", "1node", *words]) == 0
    text = capsys.readouterr().out
    assert f"#SBATCH --comment={written}" in text.splitlines()
    assert f"#SBATCH --job-name={written}" in [line.split("    #")[0] for line in lines(text)]
    [options] = Template(text).parts
    assert (options["comment"], options["job-name"]) == (value, value)
    again = Template(text)
    again.set("comment", "plain")
    assert again.parts[0]["comment"] == "plain"
    assert lines(again.text).count("#SBATCH --comment=plain") == 1


def test_a_quoted_value_keeps_the_comment_behind_it():
    template = Template('#!/bin/bash\n#SBATCH --comment="a # b"  # mine\n')
    assert template.parts == [{"comment": "a # b"}]
    template.set("comment", "c d")
    assert template.text == '#!/bin/bash\n#SBATCH --comment="c d"  # mine\n'


def test_short_options_of_an_own_script(cluster, capsys, tmp_path):
    own = tmp_path / "own.sbatch"
    own.write_text("#!/bin/bash\n#SBATCH -N 2 # nodes\n#SBATCH -t 10\n\necho\n#SBATCH -N 9\n")
    assert main(["slurm", "render", str(own), "--nodes", "4"]) == 0
    assert capsys.readouterr().out == (
        "#!/bin/bash\n#SBATCH --nodes=4 # nodes\n#SBATCH -t 10\n\necho\n#SBATCH -N 9\n"
    )


def test_templates_of_the_module_come_first(cluster, capsys, monkeypatch, tmp_path):
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "env.sh").touch()
    (tmp_path / "slurm" / "1node.sbatch").write_text("#!/bin/bash\n#SBATCH --nodes=1\n")
    monkeypatch.setenv("GEAR_HOME", str(tmp_path))
    assert main(["slurm", "render", "1node"]) == 0
    assert capsys.readouterr().out == "#!/bin/bash\n#SBATCH --nodes=1\n"


# ---- what is submitted ----


def test_submit_hands_over_the_script_and_the_words(cluster, capsys):
    words = "slurm submit 1node --time 2:00:00 env=pendulum algo.n_step=3".split()
    assert main([*words, "name=a  b"]) == 0
    assert capsys.readouterr().out == "Submitted batch job 7\n"
    assert (cluster / "words").read_text().splitlines() == [
        "1node.sbatch",
        "env=pendulum",
        "algo.n_step=3",
        "name=a  b",
    ]
    assert "#SBATCH --time=2:00:00" in (cluster / "script").read_text()


def test_what_sbatch_refuses_is_one_sentence(cluster, capsys):
    refuses = "[ $1 = --test-only ] || { echo 'sbatch: error: Invalid account' >&2; exit 1; }"
    put(cluster / "sbatch", refuses)
    assert main(["slurm", "submit", "1node"]) == 2
    assert capsys.readouterr().err == "gear: [slurm] sbatch refuses the job: Invalid account\n"


# ---- what is refused ----


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "1node --set partition=none",
            "there is no partition none: name one with --set partition=",
        ),
        ("1node --set partition=none", "standard (1-0:00:00, 32 nodes), gpu (2:00:00, 8 nodes)"),
        ("1node --set partition=night", "partition night is closed"),
        ("1node --time 2-00:00:00", "standard runs jobs for 1-0:00:00 at most, and --time=2-00:0"),
        ("1node --time 2-00:00:00", "or --set partition=long, which has it"),
        ("1node --time infinite --set partition=gpu", "gpu runs jobs for 2:00:00 at most"),
        ("multinode-srun --nodes 33", "partition standard has 32 nodes, and --nodes=33"),
        ("multinode-srun --nodes 5 --set partition=gpu", "gives a job 4 nodes at most"),
        ("1node --set cpus-per-task=40", "have 64 CPUs at most, and the job's tasks 80 on each"),
        ("1gpu", "nodes of partition standard have no GPUs, and the job 1 on each: ask for less"),
        ("1gpu --set partition=gpu --set gres=gpu:7", "have 6 GPUs at most, and the job 7"),
        ("1gpu --set partition=gpu --set gres=gpu:v100:1", "no GPUs of type v100"),
        ("1node --set partition=gpu --set gpus-per-task=h100:3", "4 GPUs of type h100 at most"),
        ("1gpu --set partition=gpu,long --set gres=gpu:9", "nodes of partition gpu have 6 GPUs"),
        ("actors-learner --set partition=gpu --set 1:nodes=40", "32 nodes, and --nodes=40"),
        ("1node --set 1:nodes=2", "this job has 1 part(s), numbered from 0"),
        ("1node --set nodes=none", "--nodes=none: a whole number, 1 or more, is allowed"),
        ("1node --time soon", "time 'soon': 90 (minutes), 1:30:00 or 2-12:00:00"),
        ("1node --set =3", "--set =3: an option of sbatch is allowed"),
        ("none", "there is no template none in"),
        ("none", "name one of 1gpu, 1node, actors-learner"),
    ],
)
@pytest.mark.parametrize("command", ["render", "submit"])
def test_refused(cluster, capsys, command, words, sentence):
    assert main(["slurm", command, *words.split()]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gear: [slurm] ")
    assert said.err.count("\n") == 1
    assert sentence in said.err
    assert not (cluster / "script").exists()


@pytest.mark.parametrize("command", ["render", "submit"])
@pytest.mark.parametrize("option", ["gpus=2", "mem=9999999G", "ntasks=9999", "constraint=no"])
def test_what_slurm_would_never_run_is_refused(cluster, capsys, command, option):
    """It is asked about the script as it would be submitted, and knows all options."""
    error = "allocation failure: Requested node configuration is not available"
    (cluster / "never").write_text(f"sbatch: error: {error}\n")
    words = ["--set", "cpus-per-task=1", "--set", option, "--set", "partition=long"]
    assert main(["slurm", command, "1node", *words, "--nodes", "4"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"gear: [slurm] sbatch refuses the job: {error}\n")
    assert f"#SBATCH --{option}" in (cluster / "tested").read_text()
    assert not (cluster / "script").exists()


def test_nodes_that_slurm_has_and_not_now_are_waited_for(cluster, capsys):
    error = "allocation failure: Required node not available (down, drained or reserved)"
    (cluster / "never").write_text(f"sbatch: error: {error}\n")
    assert main(["slurm", "submit", "1node"]) == 0
    said = capsys.readouterr()
    assert said.out == "Submitted batch job 7\n"
    assert said.err == f"gear: [slurm] the job has to wait: {error}\n"


def test_slurm_tells_only_of_nodes_that_are_up(cluster, capsys):
    """Others of the partition are drained: those may be what the job asks for."""
    error = "allocation failure: Requested node configuration is not available"
    (cluster / "never").write_text(f"sbatch: error: {error}\n")
    assert main(["slurm", "submit", "1node", "--set", "constraint=big"]) == 0
    said = capsys.readouterr()
    assert said.out == "Submitted batch job 7\n"
    assert said.err == (
        f"gear: [slurm] on the nodes that are up Slurm would not run the job: {error}; 2 node(s) "
        "of its partitions are away: it waits for these, or sbatch refuses it\n"
    )
    (cluster / "never").write_text("sbatch: error: allocation failure: Invalid feature\n")
    assert main(["slurm", "submit", "1node", "--set", "constraint=big"]) == 2
    assert "sbatch refuses the job: allocation failure: Invalid f" in capsys.readouterr().err


def test_slurm_is_asked_about_what_is_printed(cluster, capsys):
    assert main(["slurm", "render", "1node", "--set", "mem=1G"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ((cluster / "tested").read_text(), "")
    assert not (cluster / "script").exists()


def test_sinfo_without_sbatch(cluster, capsys, monkeypatch):
    (cluster / "sbatch").unlink()
    monkeypatch.setenv("PATH", f"{cluster}:/nowhere")
    put(cluster / "sinfo", f"exec /bin/cat '{cluster}/told'")
    for command in ("render", "submit"):
        assert main(["slurm", command, "1node"]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert "sbatch checks and takes jobs, and is not here: run this on a login" in said.err


def test_nodes_that_are_away_are_waited_for(cluster, capsys):
    words = ["slurm", "render", "1gpu", "--set", "partition=gpu", "--set", "gres=gpu:h100:4"]
    assert main([*words, "--nodes", "4"]) == 0
    assert capsys.readouterr().err == ""
    (cluster / "told").write_text(
        "gpu*|up|1:00:00|1-infinite|1|8|gpu:4|idle\ngpu*|up|1:00:00|1-infinite|3|8|gpu:4|drained\n"
    )
    assert main(["slurm", "render", "1gpu", "--nodes", "2"]) == 0
    assert capsys.readouterr().err == (
        "gear: [slurm] of the nodes of partition gpu that suit the job 1 are up and it needs 2: it "
        "waits until more are\n"
    )


def test_without_slurm(cluster, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(cluster.parent))
    assert main(["slurm", "render", "1node"]) == 2
    assert "here there is none: run this on a login node" in capsys.readouterr().err
    monkeypatch.setenv("PATH", f"{cluster}:/bin")
    put(cluster / "sinfo", "echo 'slurm_load_partitions: Unable to contact' >&2; exit 1")
    assert main(["slurm", "render", "1node"]) == 2
    assert "does not tell what the cluster has: slurm_load_part" in capsys.readouterr().err


def test_no_default_partition(cluster, capsys):
    (cluster / "told").write_text(SINFO.replace("*|up", "|up"))
    assert main(["slurm", "render", "1node"]) == 2
    assert "the cluster has no default partition: name one" in capsys.readouterr().err


# ---- what Slurm writes ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("1:30:00", 5400),
        ("2-12", 216000),
        ("2-12:30", 217800),
        ("1-00:00:01", 86401),
        ("infinite", None),
        ("UNLIMITED", None),
    ],
)
def test_times(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(null)", {}),
        ("gpu:4", {"": 4}),
        ("gpu:h100:4(S:0-1),gpu:a100:2(S:2,3)", {"h100": 4, "a100": 2}),
        ("craynetwork:4,gpu:no_consume:2", {"": 2}),
    ],
)
def test_gpus(text, expected):
    assert gpus(text) == expected


def test_partitions():
    found = parse(SINFO)
    assert [*found] == ["standard", "gpu", "long", "night"]
    assert [name for name, partition in found.items() if partition.is_default] == ["standard"]
    assert [name for name, partition in found.items() if not partition.is_up] == ["night"]
    assert [nodes.away for nodes in found["gpu"].nodes] == [False, True]
    assert (found["gpu"].most_nodes, found["long"].limit_s) == (4, None)
    assert found["long"].nodes[0].cpus == 32
