"""What every setting means, which values were tried, and when to change it.

`unseen methods NAME` and docs/reference/settings.md show these sentences. Values that were tried
are those of grids/ and docs/tuning.md.
"""

from __future__ import annotations

from typing import NamedTuple


class Explanation(NamedTuple):
    """The meaning of a setting, and advice: values that were tried, when to change it."""

    meaning: str
    advice: str = ""


LOOP: dict[str, Explanation] = {
    "steps": Explanation("Number of updates.", "Raise it while the source accuracy still grows."),
    "batch_size": Explanation("Samples of an update.", "Lower it if memory runs out."),
    "epochs": Explanation("Passes over the training data, in place of steps."),
    "augment": Explanation("Batch transforms before every update.", "See docs/augmentations.md."),
    "views": Explanation(
        "Views of a batch in one update: the batch itself, then augmented ones.",
        "2 with augment=affine,randconv; the cost of an update grows with it.",
    ),
    "lr_schedule": Explanation(
        "Learning rates over training: none (constant), linear or cosine, which end at 0.",
        "Linear gave ERM two of the three points that noise gave on speech_shifts.",
    ),
    "ball": Explanation(
        "Largest change of an input value by an adversary that searches before every update.",
        "For inputs without augmentations of their own, such as word counts; 0.0003 there.",
    ),
    "clip": Explanation(
        "Largest norm of the gradients of an optimizer; larger ones are scaled down.",
        "Set it, to 1.0 say, if the loss jumps.",
    ),
    "ema": Explanation(
        "Decay of the average of the weights that is evaluated and saved.",
        "Set it, to 0.99 say, if the accuracy differs from checkpoint to checkpoint.",
    ),
    "amp": Explanation(
        "Passes of the model in 16 bits: bf16, or fp16 on CUDA.", "For speed, on hardware for it."
    ),
    "microbatch": Explanation(
        "Samples of a process in memory at a time; a step adds up the gradients of its parts.",
        "If memory runs out: the numbers stay, except with BatchNorm. See docs/scaling.md.",
    ),
    "activation_checkpointing": Explanation(
        "Compute the activations within the model's blocks again in the backward pass.",
        "If memory runs out and the model is deep; a step takes about a third longer.",
    ),
    "log_every": Explanation("Steps from one record of the logs to the next."),
    "checkpoint_every": Explanation("Steps that a killed run loses at most."),
    "num_checkpoints": Explanation("Evenly spaced weights to keep, for choosing among them later."),
}

SETTINGS: dict[str, Explanation] = {
    # of every method
    "sites": Explanation(
        "Layers whose outputs are perturbed; auto for the first that the model runs.",
        "Noise behind the first layer cost accuracy on digits and google_commands.",
    ),
    "embedding": Explanation(
        "The last hidden layer, whose output bounds the perturbations.",
        "Name it if the automatic choice that is logged is wrong.",
    ),
    "lr": Explanation(
        "Learning rate of the model.",
        "Change it first: ERM gained 5 points on mini_digits from 1e-3 instead of 1e-4.",
    ),
    "optimizer": Explanation("adam or sgd; in Python also a function that makes one."),
    "weight_decay": Explanation("Weight decay of the model; heads have none."),
    "ignore_label": Explanation("Label that does not count."),
    "output": Explanation(
        "Where the logits are in what the model returns: a key, or in Python a function.",
        "Set it if the model returns several tensors.",
    ),
    "loss": Explanation(
        "cross_entropy, bce, mse or huber; in Python also a function.", "See docs/losses.md."
    ),
    "class_weights": Explanation(
        "Weights of the classes in cross-entropy.", "Set them if classes are of unequal size."
    ),
    "label_smoothing": Explanation("Share of a label that cross-entropy spreads over all classes."),
    # uncertainty_guided
    "draws": Explanation(
        "Monte-Carlo draws of the noise in a step.",
        "1 to 20 were tried; the time of a step grows with it.",
    ),
    "warmup": Explanation(
        "Steps without the method's own term, before it begins.",
        "0, 100 and 300 were tried; it must be smaller than the number of steps.",
    ),
    "meta": Explanation(
        "Order of the meta step, first or second; none learns source and noise together.",
        "Second order takes more time and memory.",
    ),
    "inner_lr": Explanation("Size of the inner step of meta-learning; none for lr."),
    "reduction": Explanation("Of distance and KL over features: mean, or sum as printed."),
    "chunk": Explanation("Draws in memory at a time; none for all.", "Set 1 if memory runs out."),
    "noise.kind": Explanation("learned, or an ablation of what the heads learn."),
    "noise.per": Explanation(
        "A random number per channel, or per feature.", "feature helped on cifar10_c."
    ),
    "noise.sign": Explanation(
        "Noise of both signs, or positive as printed.",
        "both gained 15 points on digits_shifts; positive is for counts, such as words.",
    ),
    "noise.act": Explanation(
        "Noise as an offset, a gain, both, or a kernel that convolves each image on its own.",
        "gain helped on darker images (driving); kernel is for sites=input and small scales.",
    ),
    "noise.scale": Explanation(
        "Amount of noise in standard deviations of the features; none for absolute noise.",
        "Change it early: 0.5 to 16 were tried; lower it if the source accuracy falls.",
    ),
    "noise.kernel_size": Explanation("Side of the kernel of noise.act=kernel, an odd number."),
    "noise.strength": Explanation(
        "Multiply the noise by a uniform number in 0..1 per sample, or per batch and draw.",
        "Set sample if noise costs accuracy beside strong augmentations.",
    ),
    "noise.sparse": Explanation("Fraction of the features or channels that receive noise."),
    "noise.depth": Explanation(
        "Noise at all sites, or at one that is drawn in each step (random).",
        "random is for several sites; it is cheaper than all of them, and needs no learned mixup.",
    ),
    "noise.head_input": Explanation("Heads of later sites read clean or perturbed features."),
    "noise.minimize": Explanation(
        "Whether the heads also descend on the loss.",
        "Set false if the noise vanishes during training, as on cifar10_c.",
    ),
    "noise.lr": Explanation("Learning rate of the heads; none for lr."),
    "adversary.rounds": Explanation(
        "Number of ascents in all; none for no limit.",
        "none, with every=20 and steps=5, for long trainings, as in driving.",
    ),
    "adversary.every": Explanation("Steps from one ascent to the next.", "1 and 20 were tried."),
    "adversary.steps": Explanation("Gradient steps of an ascent.", "1, 5 and 30 were tried."),
    "adversary.lr": Explanation("Size of the gradient steps of an ascent."),
    "adversary.beta": Explanation(
        "Weight of the distance in the embedding, which bounds the adversary.",
        "0.001 to 100 were tried on digits; raise it if the source accuracy falls.",
    ),
    "mixup.weight": Explanation(
        "Weight of the loss on mixed features.",
        "0.01 and 1 were tried; none for mixup was best on four tasks of docs/tuning.md.",
    ),
    "mixup.at": Explanation("Layer whose output is mixed; none for the last site."),
    "mixup.detach": Explanation("Mix detached features, so that the layers before do not learn."),
    "mixup.rho": Explanation("Probability of the true class in a smoothed label."),
    "mixup.temperature": Explanation("Of the relaxed choice whether to smooth a label."),
    "mixup.kind": Explanation("learned, or random with Beta(1, 1), an ablation."),
    "weights.source": Explanation(
        "Weight of the source loss.", "Keep it: without it, large noise made training fail."
    ),
    "weights.perturbed": Explanation("Weight of the loss on perturbed features."),
    "weights.kl": Explanation("Weight of the divergence from the heads after the last ascent."),
    # other methods
    "alpha": Explanation("Of Beta(alpha, alpha), from which the mixing coefficient is drawn."),
    "side": Explanation("Side of the square, as a fraction of the image's."),
    "policy": Explanation("Data set that the policy was learned on."),
    "eps": Explanation("Largest change of an input.", "For inputs of another range, scale it."),
    "step_size": Explanation("Size of a step of the attack."),
    "attack_steps": Explanation("Steps of the attack.", "Each costs a pass and its gradient."),
    "local_weight": Explanation("Weight of the loss that patches must not be able to lower."),
    "patch_lr": Explanation("Learning rate of the classifier of patches."),
    "classes": Explanation("Number of classes; none to find it in the first step."),
    "rotation_weight": Explanation("Weight of the loss of predicting rotations."),
    "jigsaw_weight": Explanation("Weight of the loss of solving puzzles."),
    "ordered_share": Explanation("Share of the batch that is not shuffled."),
    "puzzles": Explanation("Number of permutations of the tiles."),
    "rounds": Explanation("Number of fictitious domains."),
    "every": Explanation("Steps from one round to the next."),
    "capacity": Explanation("Samples of a fictitious domain.", "Lower it if rounds take long."),
    "ascent_steps": Explanation("Gradient steps of a fictitious sample."),
    "ascent_lr": Explanation(
        "Size of these steps.",
        "Made for digits; 0.2 for driving. Raise it if samples hardly differ from the source.",
    ),
    "gamma": Explanation("Weight of the distance in the embedding."),
    "beta": Explanation("Weight of the distance in input space."),
    "relaxation": Explanation("Distance by reconstruction error as printed, or by shift."),
    "order": Explanation("Order of the meta step, 1 or 2."),
    "wae_steps": Explanation("Steps of the auto-encoder in a step of training."),
    "passes": Explanation("Random passes of a prediction.", "Fewer are faster and noisier."),
    "kl_weight": Explanation("Weight of the divergence from the prior."),
    "prior_sigma": Explanation("Standard deviation of the prior."),
    "sigma_start": Explanation("Standard deviation of the weights at the start."),
    "sigma_lr": Explanation("Learning rate of the standard deviations."),
    "rate": Explanation("Probability that dropout sets a feature to zero."),
}


def explain(name: str, loop: bool = False) -> Explanation:
    """Return the explanation of a setting; of a user's own method there is none."""
    return (LOOP if loop else SETTINGS).get(name, Explanation(""))
