# A guest without a system, in one boot sector: it lets go of the PCI devices that shall be unplugged, and is switched off
# by the power button. It costs a second of a processor where Linux costs twenty.
# QEMU's registers of q35: docs/specs/acpi_pci_hotplug.rst, and PM1 of ICH9 at the address that SeaBIOS gives it.
.code16
.set BUTTON, 0x100
    xorw %ax, %ax
    movw %ax, %ds
    movw $BUTTON, %ax
    movw $0x602, %dx       # PM1 enable
    outw %ax, %dx
    sti
wait:
    hlt                    # until the timer's interrupt, 18 of a second
    incw 0x7e00
    testw $7, 0x7e00
    jnz wait
    movw $0x600, %dx       # PM1 status
    inw %dx, %ax
    testw $BUTTON, %ax
    jnz off
    xorl %ecx, %ecx
bus:
    movl %ecx, %eax
    movw $0xcd0, %dx       # select the bus
    outl %eax, %dx
    movw $0xcc4, %dx       # its slots whose device shall go
    inl %dx, %eax
    testl %eax, %eax
    jz next
    movw $0xcc8, %dx       # eject the first of them
    outl %eax, %dx
next:
    incw %cx
    cmpw $32, %cx
    jb bus
    jmp wait
off:
    movw $0x2000, %ax      # S5
    movw $0x604, %dx       # PM1 control
    outw %ax, %dx
    jmp off
.org 510
    .word 0xaa55
