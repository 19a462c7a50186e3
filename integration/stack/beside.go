package stack

import (
	"flag"
	"strconv"
)

// Beside lets so many tests of this program that are parallel run at the same time, unless -parallel says how many. The flag's default is the
// number of processors, which is too few for tests that mostly wait. It is called before the tests.
func Beside(n int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	told := false
	flag.Visit(func(f *flag.Flag) { told = told || f.Name == "test.parallel" })
	if told {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic("called outside of a test program: " + err.Error())
	}
}
