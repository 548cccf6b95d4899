"""The pipeline of pipeline.yml in Python: pip install azure-ai-ml, then

python submit.py SUBSCRIPTION RESOURCE_GROUP WORKSPACE
"""

import sys
from pathlib import Path

from azure.ai.ml import Input, MLClient, MpiDistribution, dsl, load_component
from azure.identity import DefaultAzureCredential

NODES = 2
PROCESSES_PER_NODE = 2

train = load_component(Path(__file__).with_name("component.yml"))


@dsl.pipeline(name="horovod_component_example", default_compute="gpu-cluster")
def training(reviews):
    step = train(input_data=reviews, epochs=10)
    # The same command as horovodrun -np 4 -H server1:2,server2:2 --timeline-filename ./outputs/timeline.json python ...
    step.environment_variables = {
        "HOROVOD_TIMELINE": "./outputs/timeline.json",
        "HOROVOD_EXPECTED_SIZE": str(NODES * PROCESSES_PER_NODE),
        "HOROVOD_EXPECTED_HOSTS": str(NODES),
    }
    step.resources.instance_count = NODES
    step.distribution = MpiDistribution(process_count_per_instance=PROCESSES_PER_NODE)


def main(subscription, resource_group, workspace):
    client = MLClient(DefaultAzureCredential(), subscription, resource_group, workspace)
    job = training(reviews=Input(type="uri_folder", path="azureml:sentiment_reviews@latest"))
    print(client.jobs.create_or_update(job, experiment_name="horovod-sample-experiment").studio_url)


if __name__ == "__main__":
    main(*sys.argv[1:])
