package stack

import (
	"net"
	"strconv"
	"testing"
)

// FreeAddress is a loopback address that no other test is given, of this process or another one.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
