package config

import (
	"fmt"
	"strings"
)

// Reference gives the table of all settings in Markdown, as it stands in the README.
func Reference() string {
	var b strings.Builder
	b.WriteString("| setting | environment | default | meaning |\n|---|---|---|---|\n")
	for _, s := range Settings() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(s.Path), code(s.Env()), code(s.Default), s.Meaning)
	}
	return b.String()
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
