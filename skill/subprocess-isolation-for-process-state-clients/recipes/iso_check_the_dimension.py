"""Compare dimensions before the call; do not leave it to the client, nor to a fresh process.

FAISS raises an AssertionError without text, and under `python -O` it reads beyond your
vector and answers nonsense. chromadb says what is wrong, when it is too late to choose
another collection. No isolation cures it: the dimension is on disk, and the vector that
does not fit comes from another model. Say which of both was expected.

Scope: where the vectors come from one place that cannot change, once at start is enough.
Symptom: AssertionError without text. Or wrong neighbours, with -O. Or "Collection
    expecting embedding with dimension of 16, got 8", after a change of model, also in a
    fresh process.
Look for: search() or query() of vectors from a model that a setting chooses.
Sources: https://cookbook.chromadb.dev/core/system_constraints
    https://docs.python.org/3/using/cmdline.html#cmdoption-O
"""

# /// script
# dependencies = ["faiss-cpu>=1.10,<2", "numpy>=1.21,<3"]
# ///

import subprocess
import sys
import tempfile

from kit import broken, check, fixed, main, raises, returns


def index_and_vector(dimension):
    import faiss
    import numpy

    index = faiss.IndexFlatL2(16)
    index.add(numpy.eye(16, dtype="f4"))
    return index, numpy.eye(1, dimension, dtype="f4")


@broken(raises(AssertionError, ""))
def search_unchecked():
    index, vector = index_and_vector(8)
    return index.search(vector, 1)


def search(index, vectors, number):
    if vectors.shape[1] != index.d:
        raise ValueError(
            f"the index has dimension {index.d}, the vectors {vectors.shape[1]}:"
            " embed them with the model that it was built with"
        )
    return index.search(vectors, number)


@fixed(raises(ValueError, "the index has dimension 16, the vectors 8"))
def search_checked():
    index, vector = index_and_vector(8)
    return search(index, vector, 1)


@check(returns([[0]]))
def right_dimension_is_found():
    index, vector = index_and_vector(16)
    return search(index, vector, 1)[1].tolist()


OPTIMIZED = """
import faiss, numpy
index = faiss.IndexFlatL2(16)
index.add(numpy.eye(16, dtype="f4"))
vectors = numpy.zeros((4, 8), "f4")[:2]  # it takes the first sixteen numbers for one vector
vectors[1, 0] = 1
print(index.search(vectors, 1)[1][0, 0])
"""


@check(returns("8"))
def optimized_python_answers_nonsense():
    argv = [sys.executable, "-O", "-c", OPTIMIZED]
    return subprocess.run(argv, capture_output=True, text=True).stdout.strip()


QUERY = """
import chromadb, os
os.environ["ANONYMIZED_TELEMETRY"] = "False"
client = chromadb.PersistentClient("db")
notes = client.get_or_create_collection("notes")
notes.upsert(ids=["a"], embeddings=[[0.0] * 16])
try:
    notes.query(query_embeddings=[[0.0] * 8])
except Exception as error:
    print(error)
"""


@check(returns("Collection expecting embedding with dimension of 16, got 8"), needs="chromadb>=1.0,<2")
def fresh_process_refuses_it_too():
    with tempfile.TemporaryDirectory() as folder:
        said = []
        for _ in range(2):
            done = subprocess.run([sys.executable, "-c", QUERY], cwd=folder, capture_output=True, text=True)
            said.append(done.stdout.strip())
        return said[1] if said[0] == said[1] else said


if __name__ == "__main__":
    main()
