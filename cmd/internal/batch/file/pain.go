package file

import (
	"errors"
	"io"
)

func newPain(io.Reader, Format, Options) (source, error) {
	return nil, errors.New("open a batch file: pain.001 is not read yet")
}
