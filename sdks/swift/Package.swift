// swift-tools-version:6.0
import PackageDescription

/// Where a release of the library for Apple's systems is, and its SHA-256. `xcframework.py --release` fills this in.
let released: (url: String, checksum: String)? = nil

#if os(macOS)
// For Apple's systems the library is an xcframework: a release, or the one that lies here (see xcframework.py).
let library: Target =
    if let released {
        .binaryTarget(name: "CCactus", url: released.url, checksum: released.checksum)
    } else {
        .binaryTarget(name: "CCactus", path: "CCactus.xcframework")
    }
let linking: [LinkerSetting] = [
    .linkedFramework("Security"), .linkedFramework("CoreFoundation"), .linkedFramework("SystemConfiguration"), .linkedLibrary("iconv"),
]
#else
// Elsewhere it is a library of the system. pkg-config finds it (`scripts/install_c.sh PREFIX` writes the file), or CACTUS_PREFIX says where.
let library = Target.systemLibrary(name: "CCactus", path: "Sources/CCactus/include", pkgConfig: "cactus")
let linking: [LinkerSetting] =
    if let prefix = Context.environment["CACTUS_PREFIX"] {
        [
            .linkedLibrary("cactus"),
            .unsafeFlags(["-L\(prefix)/lib", "-Xlinker", "-rpath", "-Xlinker", "\(prefix)/lib"]),
        ]
    } else {
        [.linkedLibrary("cactus")]
    }
#endif

// Examples and the conformance runner are programs of this repository, which a package that uses this one does not want.
let names = [
    "01-install", "02-chat", "03-stream", "04-cancel", "05-tools", "06-structured", "07-picture-or-sound", "08-transcribe",
    "09-embed-and-search", "10-offline-and-lifecycle", "11-hybrid",
]
#if os(macOS)
let standIns: [Target] = []
let framework: [Target.Dependency] = []
#else
// Stand-ins of what is used of Apple's framework, so that what is behind it is compiled and run elsewhere, too.
let standIns: [Target] = [
    .target(name: "FoundationModels", path: "Tests/FoundationModels", swiftSettings: [.unsafeFlags(["-user-module-version", "2.0"])]),
    .executableTarget(
        name: "foundation-models-check", dependencies: ["CactusFoundationModels", "FoundationModels"], path: "Tests/FoundationModelsCheck"),
]
let framework: [Target.Dependency] = Context.environment["CACTUS_EXAMPLES"] != nil ? ["FoundationModels"] : []
#endif
let programs: [Target] =
    if Context.environment["CACTUS_EXAMPLES"] != nil {
        names.map { .executableTarget(name: $0, dependencies: ["Cactus"], path: "examples/\($0)") } + [
            .executableTarget(name: "conformance", dependencies: ["Cactus"], path: "conformance/Sources"),
            .executableTarget(name: "overhead", dependencies: ["Cactus", "CCactus"], path: "benches"),
        ] + standIns
    } else {
        []
    }

let package = Package(
    name: "Cactus",
    platforms: [.iOS(.v14), .macOS(.v11)],
    products: [
        .library(name: "Cactus", targets: ["Cactus"]),
        .library(name: "CactusFoundationModels", targets: ["CactusFoundationModels"]),
    ],
    targets: [
        library,
        .target(
            name: "Cactus",
            dependencies: ["CCactus"],
            resources: [.copy("PrivacyInfo.xcprivacy")],
            linkerSettings: linking
        ),
        .target(
            name: "CactusFoundationModels",
            dependencies: ["Cactus"] + framework,
            swiftSettings: framework.isEmpty ? [] : [.define("STAND_INS")]
        ),
        .testTarget(name: "CactusTests", dependencies: ["Cactus"]),
    ] + programs,
    swiftLanguageModes: [.v6]
)
