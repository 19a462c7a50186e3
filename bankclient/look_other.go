//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package bankclient

import "net"

// look would see what has come in on a connection; there is no way to here, so that no connection is used twice.
type look struct{}

func newLook(net.Conn) *look { return nil }

func (*look) nothing() bool { return false }
