"""Teachers on disjoint parts of MNIST vote on public pictures, and a student learns from 220 noisy votes at epsilon 2.

The first 9,000 test pictures are public and have no labels; accuracy is measured on the last 1,000. Needs the files of
MNIST: see docs/guides/data.md.
"""

import sys

from torch import nn

from hush import Budget, data
from hush.pate import GNMax, noise_for, train_student, train_teachers
from hush.pate.kernel_teacher import KernelTeacher
from hush.pate.queries import choose_queries
from hush.pate.strokes import strokes
from hush.pate.student_rounds import Rounds


def make_student() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.3), nn.Linear(576, 10)),
    )


def main(steps: int = 700) -> float:
    mnist = data.load("mnist")
    rows = 60_000 if steps > 10 else 3_000  # fewer for a quick look
    private, labels = (part[:rows] for part in mnist.train.tensors)
    x, y = mnist.test.tensors
    public = x[:9_000] if steps > 10 else x[:1_000]

    looks = strokes(public)  # a fixed map of each picture: nothing is learned from the private ones
    asked = choose_queries(looks, 220)
    teachers = train_teachers(
        lambda: KernelTeacher(10), strokes(private), labels, num_teachers=250, num_classes=10, queries=looks[asked]
    )
    budget = Budget(epsilon=2.0, delta=1e-5)
    vote = GNMax(stddev=noise_for(budget, queries=220))
    answers = vote.answer(teachers.votes(), budget=budget)

    others = [row for row in range(len(public)) if row not in set(asked.tolist())]
    settings = Rounds(steps=(min(250, steps), min(350, steps), steps))
    student = train_student(make_student, public[asked], answers.labels, public[others], "rounds", settings=settings)
    accuracy = float((student(x[9_000:]).argmax(1) == y[9_000:]).double().mean())
    print(f"accuracy {100 * accuracy:.2f} %, proven {answers.guarantee(delta=1e-5)}")
    return accuracy


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
