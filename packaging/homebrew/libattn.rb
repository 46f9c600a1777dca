# SPDX-License-Identifier: MIT
class Libattn < Formula
  desc "Attention mechanisms, forward and backward, on a CPU"
  homepage "@HOME@"
  url "@URL@"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => [:build, :test]
  depends_on "cjson"
  depends_on "libpng"
  depends_on "libzip"
  depends_on :linux # macOS is untested

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DATTN_TESTS=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    system bin/"attn", "check", "fwd:f32:sq70:d64"
    assert_equal version.to_s, shell_output("pkgconf --modversion libattn").strip
  end
end
