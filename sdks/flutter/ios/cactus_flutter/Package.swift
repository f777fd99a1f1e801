// swift-tools-version: 5.9
import PackageDescription

let package = Package(
    name: "cactus_flutter",
    platforms: [.iOS("13.0")],
    products: [.library(name: "cactus-flutter", targets: ["cactus_flutter"])],
    targets: [
        .target(
            name: "cactus_flutter",
            resources: [.process("PrivacyInfo.xcprivacy")]
        )
    ]
)
