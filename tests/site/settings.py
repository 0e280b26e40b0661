"""Settings of ReFrame for the checks of this folder: copy this file to a folder that all nodes see,
say what your site has, and check the installed module by tests/site/run.sh.

Features say which checks a partition can run:

    slurm   it submits the job scripts of the module
    nodes   two ranks run on two nodes
    gpu     its nodes have GPUs: `devices` says how many, and `resources` how a job asks for them;
            they are checked with an environment of the same feature
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULEFILES = "/opt/gear/modulefiles"
KEPT_RATES = {"reference": str(HERE / "reference.json")}

site_configuration = {
    "systems": [
        {
            "name": "my-cluster",
            "hostnames": [".*"],
            "modules_system": "envmod",  # lmod for Lmod
            "partitions": [
                {
                    "name": "login",
                    "scheduler": "local",
                    "launcher": "mpirun",
                    "max_jobs": 1,  # here they would share the machine
                    "environs": ["gear-cpu"],
                    "extras": KEPT_RATES,
                },
                {
                    "name": "cpu",
                    "scheduler": "squeue",  # slurm where sacct answers
                    "launcher": "srun",
                    "access": ["--partition=standard"],  # and --account, --qos...
                    "features": ["slurm", "nodes"],
                    "environs": ["gear-cpu"],
                    "extras": KEPT_RATES,
                },
                # {
                #     "name": "gpu",
                #     "scheduler": "squeue",
                #     "launcher": "srun",
                #     "access": ["--partition=gpu"],
                #     "features": ["slurm", "nodes", "gpu"],
                #     "devices": [{"type": "gpu", "num_devices": 4}],
                #     "resources": [
                #         {"name": "_rfm_gpu", "options": ["--gres=gpu:{num_gpus_per_node}"]}
                #     ],
                #     "environs": ["gear-gpu"],
                #     "extras": KEPT_RATES,
                # },
            ],
        }
    ],
    "environments": [
        {
            "name": "gear-cpu",
            "modules": [{"name": "gear/0.1.0-cpu", "path": MODULEFILES}],
            "features": ["gear"],
        },
        # {
        #     "name": "gear-gpu",
        #     "modules": [{"name": "gear/0.1.0-gpu", "path": MODULEFILES}],
        #     "features": ["gear", "gpu"],
        # },
    ],
    # Jobs load the module, and ReFrame itself does not.
    "general": [{"resolve_module_conflicts": False, "use_login_shell": True}],
}
