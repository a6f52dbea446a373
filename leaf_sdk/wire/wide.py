"""The messages of `codec.proto` with every 32-bit number widened to 64 bits: the classes that frames are read with.

A protobuf parser cuts a number that is too great for its field to 32 bits without a word, and the wrong token would go
to the model. On the wire both widths are the same, so reading with the wider one shows the number that was sent.
Stands on the generated module; above: `protobuf_frames`.
"""

from typing import cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from . import codec_pb2 as pb


def _widened() -> type[pb.CodecFrame]:
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    narrow = f".{file.package}."
    file.name, file.package = f"wide/{file.name}", f"{file.package}.wide"
    for message in file.message_type:
        for field in message.field:
            if field.type == field.TYPE_UINT32:
                field.type = field.TYPE_UINT64
            elif field.type == field.TYPE_MESSAGE:
                field.type_name = field.type_name.replace(narrow, f".{file.package}.")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"{file.package}.CodecFrame")
    return cast("type[pb.CodecFrame]", message_factory.GetMessageClass(found))


WideFrame = _widened()
