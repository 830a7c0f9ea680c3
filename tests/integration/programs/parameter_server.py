"""A linear model, trained by TensorFlow's ParameterServerStrategy: ddlrun -tf_config -ps N.

The chief prints the name of the device of the weights, and the weights; what was to be learned is
1, 2, 3, 4.
"""

from __future__ import annotations

import tensorflow as tf

STEPS = 100  # between two looks at the loss
ROUNDS = 50  # at most: two workers take steps at once, so how many are needed differs


def serve(cluster: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    """What a worker and a parameter server do, until the job ends."""
    server = tf.distribute.Server(
        cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id
    )
    server.join()


def train(cluster: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    """What the chief does: it hands steps to the workers."""
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([4, 1]))
    inputs = tf.random.stateless_normal([64, 4], seed=[1, 2])
    outputs = inputs @ tf.constant([[1.0], [2.0], [3.0], [4.0]])

    def loss() -> tf.Tensor:
        return tf.reduce_mean((inputs @ weights - outputs) ** 2)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            of_batch = loss()
        weights.assign_sub(0.1 * tape.gradient(of_batch, weights))

    for _ in range(ROUNDS):
        for _ in range(STEPS):
            coordinator.schedule(step)
        coordinator.join()
        if loss() < 1e-9:
            break
    print(weights.device, *(f"{weight:.3f}" for weight in weights.numpy().ravel()), flush=True)


if __name__ == "__main__":
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    (train if resolver.task_type == "chief" else serve)(resolver)
