"""Trains examples/keras_sagemaker.py on two instances of eight GPUs: pip install "sagemaker>=3", then

python submit.py ROLE IMAGE s3://BUCKET/PREFIX

The data are below PREFIX, in the folders train, validation and test.
"""

import sys
from pathlib import Path

from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode
from sagemaker.train.distributed import MPI

INSTANCES = 2
PROCESSES = 8
RANKS = INSTANCES * PROCESSES
CHANNELS = ("train", "validation", "test")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# -np once more: the SDK's own is that of one instance. The ranks stop if it is another job than promised. The variables
# of the channels, whose folders are the same on all instances, are exported because ssh does not pass variables on.
MPIRUN = ["-np", str(RANKS)]
VARIABLES = {
    "HOROVOD_EXPECTED_SIZE": str(RANKS),
    "HOROVOD_EXPECTED_HOSTS": str(INSTANCES),
    "HOROVOD_TIMELINE": "/opt/ml/output/data/timeline.json",
}


def trainer(role, image):
    channels = [f"SM_CHANNEL_{name.upper()}" for name in CHANNELS]
    exported = [word for name in (*VARIABLES, *channels) for word in ("-x", name)]
    return ModelTrainer(
        role=role,
        training_image=image,
        source_code=SourceCode(source_dir=str(EXAMPLES), entry_script="keras_sagemaker.py"),
        compute=Compute(instance_type="ml.p4d.24xlarge", instance_count=INSTANCES),
        distributed=MPI(process_count_per_node=PROCESSES, mpi_additional_options=[*MPIRUN, *exported]),
        environment=VARIABLES,
        hyperparameters={"epochs": 40, "learning-rate": 0.02},
    )


def main(role, image, data):
    inputs = [InputData(channel_name=name, data_source=f"{data.rstrip('/')}/{name}") for name in CHANNELS]
    trainer(role, image).train(input_data_config=inputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
