// Tensors as plain memory: checks, and staging buffers where a tensor is not contiguous.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace ddl_torch {

using Tensors = std::vector<at::Tensor>;

// Refuses a tensor on a device that libddl does not know; `what` names the operation.
void check_device(const char* what, const at::Tensor& tensor);

// Also refuses tensors that are not dense.
void check_tensor(const char* what, const at::Tensor& tensor);
void check_tensors(const char* what, const Tensors& tensors);

// Refuses a list that is not of one tensor.
void check_one(const char* what, const Tensors& tensors);

// The only tensor of `tensors`, checked.
at::Tensor& only(const char* what, Tensors& tensors);

// Refuses a list of one tensor per rank that are not of the type of `own`, or whose tensor for
// `rank`, this one, is not of its size. The others' sizes may differ.
void check_parts(const char* what, const at::Tensor& own, const Tensors& tensors, int rank);

// Refuses an `all` that is not `n` times `one`.
void check_blocks(const char* what, const at::Tensor& one, const at::Tensor& all, int n);

// Memory to receive into: the tensor's own if it is contiguous, else a buffer that `deliver`
// copies.
at::Tensor landing(const at::Tensor& tensor);
void deliver(const at::Tensor& from, const at::Tensor& to);

// pack makes one flat buffer with all the tensors' elements, flat_like one without their values.
// unpack copies the elements back.
at::Tensor pack(const Tensors& tensors);
at::Tensor flat_like(const Tensors& tensors);
void unpack(const at::Tensor& flat, const Tensors& tensors);

}  // namespace ddl_torch
