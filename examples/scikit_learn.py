"""A scikit-learn pipeline that knows when its inputs have changed.

python examples/scikit_learn.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unseen.integrations.sklearn import UnseenClassifier

X, y = load_wine(return_X_y=True)
train_X, test_X, train_y, test_y = train_test_split(X, y, random_state=0, stratify=y)

pipeline = make_pipeline(StandardScaler(), UnseenClassifier("erm", steps=100, random_state=0))
print("accuracy of 3 folds:", np.round(cross_val_score(pipeline, train_X, train_y, cv=3), 2))

pipeline.fit(train_X, train_y)
scaler, classifier = pipeline[0], pipeline[-1]

# Blends of two wines, which the training data does not have.
blends = (test_X + test_X[np.random.default_rng(0).permutation(len(test_X))]) / 2

for name, samples in (("wines", test_X), ("blends", blends)):
    accuracy = pipeline.score(samples, test_y)
    alarm = classifier.alarm(scaler.transform(samples))
    score = pipeline.score_samples(samples).mean()  # lower is further from the source
    print(f"{name}: accuracy {accuracy:.2f}, score {score:.3f}{', ALARM' if alarm else ''}")

print(classifier.verdict(scaler.transform(blends)).sentence)
