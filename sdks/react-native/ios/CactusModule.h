#import <CactusSpec/CactusSpec.h>

@interface CactusModule : NSObject <NativeCactusSpec>
@end
