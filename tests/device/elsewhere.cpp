// A device of its own for tests: its memory is the host's, and every op is computed on the CPU; but what a GPU refuses
// it refuses: operands on two devices, and the CPU's generator. What torch calls PrivateUse1.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>
#include <cstring>

namespace {
constexpr auto HERE = c10::DeviceType::PrivateUse1;

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    void* p = c10::alloc_cpu(n);
    return {p, p, &c10::free_cpu, c10::Device(HERE, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
};
Memory memory;

struct Random final : at::CPUGeneratorImpl {  // numbers of a generator that is the device's
  explicit Random(c10::DeviceIndex index) : at::CPUGeneratorImpl(c10::default_rng_seed_val) {
    device_ = c10::Device(HERE, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
  void set_current_seed(uint64_t seed) override {
    at::CPUGeneratorImpl::set_current_seed(seed);
    inner.set_current_seed(seed);
  }
  at::Generator inner = at::detail::createCPUGenerator();
};
const at::Generator& default_generator() {
  static at::Generator made = at::make_generator<Random>(0);
  return made;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return at::make_generator<Random>(index < 0 ? 0 : index); }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t n) const override {
    auto fresh = memory.allocate(n);
    std::memcpy(fresh.get(), storage.data(), std::min(n, storage.nbytes()));
    storage.unsafeGetStorageImpl()->set_data_ptr(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(n);
  }
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return HERE; }
  c10::Device exchangeDevice(c10::Device) const override { return {HERE, 0}; }
  c10::Device getDevice() const override { return {HERE, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device d) const override { return c10::Stream(c10::Stream::DEFAULT, d); }
  c10::Stream exchangeStream(c10::Stream s) const override { return s; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                 std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}
at::Tensor on_cpu(const at::Tensor& t) {  // the same memory
  auto options = at::TensorOptions().dtype(t.dtype()).device(at::kCPU);
  auto plain = t.resolve_conj().resolve_neg();
  if (!plain.is_same(t)) return plain;
  return at::from_blob(t.data_ptr(), t.sizes(), t.strides(), options);
}
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool) {
  at::Tensor from = self.device().type() == HERE ? on_cpu(self) : self;
  at::Tensor to = dst.device().type() == HERE ? on_cpu(dst) : dst;
  to.copy_(from);
  return dst;
}
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  at::native::resize_(dst, self.sizes(), std::nullopt);
  return copy_from(self, dst, false);
}
at::Tensor as_strided(const at::Tensor& t, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> o) {
  return at::native::as_strided_tensorimpl(t, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      o ? std::make_optional(o->expect_int()) : std::nullopt);
}
at::Tensor view(const at::Tensor& t, c10::SymIntArrayRef size) { return at::native::view(t, C10_AS_INTARRAYREF_SLOW(size)); }
at::Tensor reshape_alias(const at::Tensor& t, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(t, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}
at::Tensor unfold(const at::Tensor& t, int64_t d, int64_t size, int64_t step) { return at::native::unfold(t, d, size, step); }
at::Tensor view_as_real(const at::Tensor& t) { return at::native::view_as_real(t); }
at::Tensor view_as_complex(const at::Tensor& t) { return at::native::view_as_complex(t); }
const at::Tensor& resize_(const at::Tensor& t, c10::SymIntArrayRef size, std::optional<c10::MemoryFormat> f) {
  return at::native::resize_(t, C10_AS_INTARRAYREF_SLOW(size), f);
}
at::Tensor& set_storage(at::Tensor& t, at::Storage s, c10::SymInt o, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  auto bytes = s; t.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(bytes));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), o.expect_int());
  return t;
}
at::Tensor& set_whole(at::Tensor& t, at::Storage s) {
  const int64_t n = static_cast<int64_t>(s.nbytes() / t.dtype().itemsize());
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(s));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(c10::IntArrayRef{n}, c10::IntArrayRef{int64_t{1}}, std::optional<int64_t>(0));
  return t;
}
at::Tensor& set_tensor(at::Tensor& t, const at::Tensor& other) {
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(other.storage());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(other.sizes(), other.strides(), other.storage_offset());
  return t;
}

at::Tensor here(const at::Tensor& t) { return t.defined() ? t.to(c10::Device(HERE, 0)) : t; }
std::optional<at::Tensor> on_cpu(const std::optional<at::Tensor>& t) {
  return t && t->defined() ? std::make_optional(on_cpu(*t)) : std::nullopt;
}
at::Tensor convolution(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef out, c10::SymInt groups) {
  TORCH_CHECK(w.device() == x.device() && (!b || !b->defined() || b->device() == x.device()), "two devices (convolution)");
  return here(at::convolution_symint(on_cpu(x), on_cpu(w), on_cpu(b), stride, padding, dilation, transposed, out, groups));
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& g, const at::Tensor& x, const at::Tensor& w,
    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
    c10::SymIntArrayRef out, c10::SymInt groups, std::array<bool, 3> mask) {
  std::vector<c10::SymInt> bias{transposed ? w.sym_size(1) * groups : w.sym_size(0)};
  auto [a, b, c] = at::convolution_backward_symint(on_cpu(g), on_cpu(x), on_cpu(w), c10::SymIntArrayRef(bias), stride, padding,
                                                   dilation, transposed, out, groups, mask);
  return {here(a), here(b), here(c)};
}

void refuse_mixed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  const auto n = op.schema().arguments().size();
  // CUDA kernels take the indices of these from the CPU.
  const bool indexes = name == "aten::index" || name == "aten::index_put_" || name == "aten::index_put" ||
                       name == "aten::_index_put_impl_" || name == "aten::_unsafe_index";
  bool here = false; std::string other;
  auto look = [&](const at::Tensor& t, size_t k) {
    if (!t.defined()) return;
    if (t.device().type() == HERE) here = true;
    else if (t.dim() > 0 && !(indexes && k == 1)) other = t.device().str();
  };
  for (size_t k = 0; k < n; ++k) {
    auto& value = torch::jit::peek(*stack, k, n);
    if (value.isTensor()) look(value.toTensor(), k);
    else if (value.isTensorList()) for (const at::Tensor& t : value.toTensorVector()) look(t, k);
    else if (value.isOptionalTensorList()) {
      for (const auto& t : value.toListRef()) if (t.isTensor()) look(t.toTensor(), k);
    } else if (value.isGenerator()) {
      TORCH_CHECK(value.toGenerator().device().type() == HERE, "Expected a generator of this device but found one of ",
                  value.toGenerator().device().str(), " (", name, ")");
      value = c10::IValue(static_cast<Random*>(value.toGenerator().unsafeGetGeneratorImpl())->inner);
    }
  }
  TORCH_CHECK(!(here && !other.empty()), "Expected all tensors to be on the same device, but found two: elsewhere:0 and ",
              other, " (", name, ")");
}
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_mixed(op, stack);
  at::native::cpu_fallback(op, stack);
}
struct Setup { Setup() { at::RegisterPrivateUse1HooksInterface(new Hooks()); } } setup;
REGISTER_ALLOCATOR(HERE, &memory);
}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("as_strided", &as_strided);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
  m.impl("view", &view);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("unfold", &unfold);
  m.impl("view_as_real", &view_as_real);
  m.impl("view_as_complex", &view_as_complex);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", &set_whole);
  m.impl("set_.source_Tensor", &set_tensor);
}
