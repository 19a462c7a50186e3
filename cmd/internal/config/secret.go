package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
)

const (
	masked      = "[masked]"
	maxSecretKB = 64
)

// Secret is a credential. It prints masked however it is printed; Reveal gives the text.
type Secret string

// String masks.
func (Secret) String() string { return masked }

// Format masks every verb, %x and %#v included.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, masked) }

// MarshalText masks in JSON, YAML and logs.
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// Reveal gives the text.
func (s Secret) Reveal() string { return string(s) }

// URL is an address, or several separated by commas, that may carry a password. It prints without it.
type URL string

// String gives the address with every password, token and query masked.
func (u URL) String() string {
	var out []string
	for one := range strings.SplitSeq(string(u), ",") {
		out = append(out, maskURL(one))
	}
	return strings.Join(out, ",")
}

// Format masks every verb.
func (u URL) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, u.String()) }

// MarshalText masks in JSON, YAML and logs.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Reveal gives the address as it was set.
func (u URL) Reveal() string { return string(u) }

// HasSecret reports whether a password, token or query parameter with one is part of the address.
func (u URL) HasSecret() bool {
	for one := range strings.SplitSeq(string(u), ",") {
		parsed, err := url.Parse(strings.TrimSpace(one))
		if err != nil {
			return true // what cannot be read cannot be shown either
		}
		_, hasPassword := parsed.User.Password()
		bareToken := parsed.User != nil && !hasPassword && parsed.Scheme != "postgres" && parsed.Scheme != "postgresql"
		query := parsed.Query()
		if hasPassword || bareToken || query.Has("password") || query.Has("sslpassword") {
			return true
		}
	}
	return false
}

func maskURL(one string) string {
	one = strings.TrimSpace(one)
	if one == "" {
		return ""
	}
	parsed, err := url.Parse(one)
	if err != nil || parsed.Opaque != "" || (parsed.Scheme == "" && strings.ContainsAny(one, "=@")) {
		return masked
	}
	if URL(one).HasSecret() {
		parsed.User = maskUser(parsed)
	}
	if parsed.RawQuery != "" {
		query := parsed.Query()
		for _, name := range []string{"password", "sslpassword"} {
			if query.Has(name) {
				query.Set(name, "masked")
			}
		}
		parsed.RawQuery = query.Encode()
	}
	return parsed.String()
}

func maskUser(parsed *url.URL) *url.Userinfo {
	switch _, hasPassword := parsed.User.Password(); {
	case parsed.User == nil:
		return nil
	case hasPassword:
		return url.UserPassword(parsed.User.Username(), "masked")
	case parsed.Scheme == "postgres" || parsed.Scheme == "postgresql":
		return parsed.User
	default: // a user name alone is a token for the broker
		return url.User("masked")
	}
}

// Errors of ReadSecret.
var (
	ErrSecretEmpty = errors.New("the file is empty")
	ErrSecretSize  = fmt.Errorf("the file is larger than %d KiB", maxSecretKB)
	ErrSecretLines = errors.New("the file has more than one line")
)

// ReadSecret reads one secret from a file, or from stdin when path is "-". One line end at its end is not part of it.
func ReadSecret(path string, stdin io.Reader) (Secret, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path) //nolint:gosec // the operator names the file
		if err != nil {
			return "", fmt.Errorf("open secret: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	if in == nil {
		return "", errors.New("read secret: there is no standard input")
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxSecretKB<<10+1))
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	raw = bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))
	switch {
	case len(raw) > maxSecretKB<<10:
		return "", fmt.Errorf("read secret %s: %w", path, ErrSecretSize)
	case len(bytes.TrimSpace(raw)) == 0:
		return "", fmt.Errorf("read secret %s: %w", path, ErrSecretEmpty)
	case bytes.ContainsAny(raw, "\r\n"):
		return "", fmt.Errorf("read secret %s: %w", path, ErrSecretLines)
	}
	return Secret(raw), nil
}

// ConnectURL gives the database URL with the password of password_file in it. It is for the driver only.
func (c *Config) ConnectURL() (Secret, error) {
	d := c.Database
	if d.URL == "" {
		return "", c.missing("database.url", "is missing")
	}
	if d.PasswordFile == "" {
		return Secret(d.URL.Reveal()), nil
	}
	password, err := ReadSecret(d.PasswordFile, c.stdin)
	if err != nil {
		return "", c.missing("database.password_file", err.Error())
	}
	parsed, err := url.Parse(d.URL.Reveal())
	if err != nil {
		return "", c.missing("database.url", "is not a URL")
	}
	parsed.User = url.UserPassword(parsed.User.Username(), password.Reveal())
	return Secret(parsed.String()), nil
}

// PartnerToken reads the secret of a partner's credential.
func (c *Config) PartnerToken(id string) (Secret, error) {
	token, err := ReadSecret(c.Partners[id].TokenFile, c.stdin)
	if err != nil {
		return "", c.missing("partners."+id+".token_file", err.Error())
	}
	return token, nil
}

func (c *Config) missing(path, text string) error {
	return Problems{{Place: c.Origin(path), Path: path, Text: text}}
}

// OperatorToken reads the token of the person who runs the command; "" = none is set.
func (c *Config) OperatorToken() (Secret, error) {
	if c.Operator.TokenFile == "" {
		return "", nil
	}
	token, err := ReadSecret(c.Operator.TokenFile, c.stdin)
	if err != nil {
		return "", c.missing("operator.token_file", err.Error())
	}
	return token, nil
}
