// iOS: puts the functions into the runtime, and says what the system says of memory. Not built in this repository.

#import "CactusModule.h"

#import <ReactCommon/RCTTurboModuleWithJSIBindings.h>
#import <UIKit/UIKit.h>

#include "cactus.h"
#include "jsi_native.hpp"

@interface CactusModule () <RCTTurboModuleWithJSIBindings>
@end

@implementation CactusModule

RCT_EXPORT_MODULE(Cactus)

- (instancetype)init {
    if (self = [super init]) {
        [NSNotificationCenter.defaultCenter addObserver:self
                                               selector:@selector(memoryIsShort)
                                                   name:UIApplicationDidReceiveMemoryWarningNotification
                                                 object:nil];
    }
    return self;
}

- (void)dealloc {
    [NSNotificationCenter.defaultCenter removeObserver:self];
}

- (void)memoryIsShort {
    dispatch_async(dispatch_get_global_queue(QOS_CLASS_UTILITY, 0), ^{
      cactus_memory_pressure();
    });
}

- (NSString *)modelFolder {
    NSFileManager *files = NSFileManager.defaultManager;
    NSURL *support = [files URLForDirectory:NSApplicationSupportDirectory inDomain:NSUserDomainMask appropriateForURL:nil create:YES error:nil];
    NSURL *folder = [support URLByAppendingPathComponent:@"cactus" isDirectory:YES];
    [files createDirectoryAtURL:folder withIntermediateDirectories:YES attributes:nil error:nil];
    // Before anything is downloaded: no backup takes gigabytes that can be had again.
    [folder setResourceValue:@YES forKey:NSURLIsExcludedFromBackupKey error:nil];
    return folder.path;
}

- (std::shared_ptr<facebook::react::TurboModule>)getTurboModule:(const facebook::react::ObjCTurboModule::InitParams &)params {
    return std::make_shared<facebook::react::NativeCactusSpecJSI>(params);
}

- (void)installJSIBindingsWithRuntime:(facebook::jsi::Runtime &)runtime
                          callInvoker:(const std::shared_ptr<facebook::react::CallInvoker> &)callInvoker {
    try {
        // The library is linked into the program.
        cactus::js::install(runtime, callInvoker, "");
    } catch (const std::exception &error) {
        throw facebook::jsi::JSError(runtime, error.what());
    }
}

@end
