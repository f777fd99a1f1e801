/* A library with the ABI that FAKE_ABI says, and no other function. */
#include <stdint.h>

#ifdef FAKE_ABI
uint32_t cactus_abi_version(void) { return FAKE_ABI; }
#endif
