"""Send arrays as the bytes that they are, not as text or lists of numbers.

A float32 is four bytes. As JSON it is about twenty, as a pickled list nine, and each number
becomes an object on both sides: 10,000 x 384 took 6.2 s as JSON, 0.9 s as a pickled list,
and 35 to 47 ms raw. Pickle protocol 5 hands the array's own memory over beside the message;
no copy is made for it.

Scope: a vector or two per call cost nothing either way. Protocol 5 with numpy from 1.16;
    only between processes that trust each other, as every pickle.
Symptom: calls that carry arrays take seconds and CPU. Or "Object of type ndarray is not
    JSON serializable", from include=["embeddings"]. Or "Batch size of 6000 is greater
    than max batch size of 5461", which chromadb's get_max_batch_size() tells ahead. Or
    "cannot close exported pointers exist", from shared memory that an array still shows.
Look for: tolist() ahead of json.dumps; embeddings as lists between processes.
Sources: https://docs.python.org/3/library/pickle.html#out-of-band-buffers
    https://docs.python.org/3/library/multiprocessing.shared_memory.html
"""

# /// script
# dependencies = ["numpy>=1.21,<3"]
# ///

import json
import pickle
import tempfile
from multiprocessing import shared_memory

from kit import broken, check, fixed, main, raises, returns


def rows(number=1_000):
    import numpy

    return numpy.random.default_rng(0).random((number, 384), numpy.float32)


def bytes_per_number(parts, array):
    return round(sum(map(len, parts)) / array.size)


@broken(returns(20))
def as_json():
    array = rows()
    text = json.dumps(array.tolist())
    return bytes_per_number([text.encode()], array)


@broken(returns(9))
def as_pickled_lists():
    array = rows()
    return bytes_per_number([pickle.dumps(array.tolist())], array)


@fixed(returns((4, True)))
def as_they_are():
    array = rows()
    buffers = []
    message = pickle.dumps(array, 5, buffer_callback=buffers.append)
    parts = [message, *(each.raw() for each in buffers)]
    # send the sizes and the parts; at the other end:
    found = pickle.loads(parts[0], buffers=parts[1:])
    return bytes_per_number(parts, array), bool((found == array).all())


@check(returns([True, 1]))
def nothing_is_copied():
    import numpy

    array, buffers = rows(), []
    pickle.dumps(array, 5, buffer_callback=buffers.append)
    shown = numpy.frombuffer(buffers[0].raw(), numpy.float32)
    return [numpy.shares_memory(shown, array), len(buffers)]


@check(raises(TypeError, "Object of type ndarray is not JSON serializable"))
def json_takes_no_array():
    json.dumps({"embeddings": rows(1)})


@check(returns(128))
def file_adds_a_header():
    import numpy

    array = rows()
    with tempfile.TemporaryFile() as file:
        numpy.save(file, array)
        return file.tell() - array.nbytes


@check(raises(BufferError, "cannot close exported pointers exist"))
def shared_memory_is_held_by_its_array():
    import numpy

    segment = shared_memory.SharedMemory(create=True, size=4)
    array = numpy.frombuffer(segment.buf, numpy.float32)
    try:
        segment.close()
    finally:
        del array
        segment.unlink()


@check(
    returns("ValueError: Batch size of 6000 is greater than max batch size of 5461"),
    needs="chromadb>=1.5.2,<2",
)
def batches_are_bounded():
    import chromadb

    settings = chromadb.Settings(anonymized_telemetry=False)
    ids = [str(number) for number in range(6_000)]
    with tempfile.TemporaryDirectory() as path, chromadb.PersistentClient(path, settings) as client:
        notes = client.create_collection("notes")
        try:
            notes.add(ids=ids, embeddings=[[0.0]] * len(ids))
        except chromadb.errors.InternalError as error:
            return str(error)


if __name__ == "__main__":
    main()
