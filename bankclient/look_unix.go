//go:build linux || darwin || freebsd || netbsd || openbsd

package bankclient

import (
	"errors"
	"net"
	"syscall"
)

// look sees what has come in on a connection without taking it.
type look struct {
	raw   syscall.RawConn
	peek  func(fd uintptr) bool // made once
	one   [1]byte
	quiet bool
}

// newLook gives nil for a connection that cannot be looked at.
func newLook(c net.Conn) *look {
	below, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := below.SyscallConn()
	if err != nil {
		return nil
	}
	l := &look{raw: raw}
	l.peek = func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), l.one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		l.quiet = errors.Is(err, syscall.EAGAIN)
		return true
	}
	return l
}

// nothing says that neither bytes nor an end have come in.
func (l *look) nothing() bool {
	l.quiet = false
	return l.raw.Read(l.peek) == nil && l.quiet
}
