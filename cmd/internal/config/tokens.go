package config

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// SourceTokens reads the bearer tokens of a source (or what stands for them, see gateway.Tokens), one per line, so that a new one can be valid
// before the old one is taken away. Empty lines and lines that begin with # are none.
func (c *Config) SourceTokens(name string) ([]Secret, error) {
	path := "sources." + name + ".token_file"
	file := c.Sources[name].TokenFile
	if file == "" {
		return nil, c.missing(path, "is missing: the gateway knows the source by its token")
	}
	raw, err := readSecretFile(file, c.stdin)
	if err != nil {
		return nil, c.missing(path, err.Error())
	}
	var tokens []Secret
	for line := range bytes.Lines(raw) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			tokens = append(tokens, Secret(line))
		}
	}
	if len(tokens) == 0 {
		return nil, c.missing(path, fmt.Sprintf("read secret %s: %v", file, ErrSecretEmpty))
	}
	return tokens, nil
}

func readSecretFile(file string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file) //nolint:gosec // the operator names the file
		if err != nil {
			return nil, fmt.Errorf("open secret: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	if in == nil {
		return nil, fmt.Errorf("read secret: there is no standard input")
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxSecretKB<<10+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read secret: %w", err)
	case len(raw) > maxSecretKB<<10:
		return nil, fmt.Errorf("read secret %s: %w", file, ErrSecretSize)
	}
	return raw, nil
}
