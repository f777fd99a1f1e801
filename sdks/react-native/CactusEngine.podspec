require "json"

package = JSON.parse(File.read(File.join(__dir__, "package.json")))

Pod::Spec.new do |spec|
  spec.name = "CactusEngine"
  spec.version = package["version"]
  spec.summary = package["description"]
  spec.license = package["license"]
  # CocoaPods asks for an address, and there is none before it is published.
  spec.homepage = package.fetch("homepage", "https://cactus-engine.invalid")
  spec.author = "Cactus in Rust"
  spec.source = { :http => "file:.", :type => "none" }
  spec.platforms = { :ios => "15.1" }
  spec.source_files = "ios/*.{h,mm}", "cpp/**/*.{hpp,cpp,h}"
  spec.private_header_files = "cpp/**/*.{hpp,h}"
  # What the library asks of the system, for Apple's review.
  spec.resource_bundles = { "CactusEnginePrivacy" => ["ios/PrivacyInfo.xcprivacy"] }
  # The library itself, static, for devices and simulators.
  spec.vendored_frameworks = "ios/Cactus.xcframework"
  # React Native 0.81 needs C++20.
  spec.pod_target_xcconfig = {
    "CLANG_CXX_LANGUAGE_STANDARD" => "c++20",
    "GCC_PREPROCESSOR_DEFINITIONS" => "$(inherited) CACTUS_LINKED=1",
    "HEADER_SEARCH_PATHS" => "\"$(PODS_TARGET_SRCROOT)/cpp\" \"$(PODS_TARGET_SRCROOT)/cpp/core\""
  }
  install_modules_dependencies(spec)
end
