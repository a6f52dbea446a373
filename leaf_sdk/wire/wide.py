"""The messages of `codec.proto` with every 32-bit number widened to 64 bits: the classes that frames are read with.

A protobuf parser silently cuts a number that is too large for its field to 32 bits, and the wrong token would go to the
model. Both widths have the same encoding, so reading with the wider one shows the number that was sent. Built from the
generated module.
"""

from typing import Final, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from . import codec_pb2 as pb


def _widened() -> descriptor_pb2.FileDescriptorProto:
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
    return file


_FILE: Final = _widened()
_POOL: Final = descriptor_pool.DescriptorPool()
_POOL.Add(_FILE)


def _message(name: str) -> type[Message]:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_FILE.package}.{name}"))


WideFrame: Final = cast("type[pb.CodecFrame]", _message("CodecFrame"))
WideRequest: Final = cast("type[pb.CodecRequest]", _message("CodecRequest"))
