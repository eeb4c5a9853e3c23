/* A Raspberry Pi 4 is an aarch64 machine without instructions for AES; every processor that qemu plays
 * has them. Preloaded, this hides them from whoever asks at run time. */
enum { HWCAP = 16, AES_PMULL_SHA1_SHA2 = 0x78 };

/* glibc's own, by the name it keeps for compilers. */
unsigned long __getauxval(unsigned long type);

unsigned long getauxval(unsigned long type)
{
    unsigned long value = __getauxval(type);
    return type == HWCAP ? value & ~(unsigned long)AES_PMULL_SHA1_SHA2 : value;
}
