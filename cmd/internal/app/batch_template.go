package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/cmd/internal/batch/file"
	"github.com/paidonce/paidonce/cmd/internal/config"
)

// BatchTemplate gives a template of the settings, or an error that lists those there are.
func BatchTemplate(c *config.Config, name string) (config.Template, error) {
	if t := c.Batch.Templates[name]; t != nil {
		return *t, nil
	}
	if len(c.Batch.Templates) == 0 {
		return config.Template{}, fmt.Errorf("%q is not configured: there is nothing under batch.templates", name)
	}
	return config.Template{}, fmt.Errorf("%q is not configured; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(c.Batch.Templates)), ", "))
}

// BatchFile reads what a template, or flags in its place, say of a file. Problems are named by the settings of the template; "" = all of it.
func BatchFile(c *config.Config, t config.Template) (file.Format, file.Options, []config.Problem) {
	var found []config.Problem
	bad := func(setting, text string) { found = append(found, config.Problem{Path: setting, Text: text}) }
	format := file.Format(t.Format)
	if format != "" && !slices.Contains(file.Formats(), format) {
		bad("format", fmt.Sprintf("must be one of %s", strings.Trim(fmt.Sprint(file.Formats()), "[]")))
	}
	opt := file.Options{Source: t.Source, Route: t.Route, Charset: file.Charset(t.Charset), Ignore: t.Ignore, Routes: BatchRoutes(c, t.Source)}
	opt.Dialect = file.Dialect{Columns: t.Columns, Trailer: t.Trailer}
	for _, one := range []struct {
		setting, text string
		into          *byte
	}{{"delimiter", t.Delimiter, &opt.Dialect.Delimiter}, {"decimal_mark", t.DecimalMark, &opt.Dialect.Decimal}, {"thousands_mark", t.ThousandsMark, &opt.Dialect.Thousands}} {
		switch {
		case one.text == "tab":
			*one.into = '\t'
		case len(one.text) == 1:
			*one.into = one.text[0]
		case one.text != "" || one.setting != "thousands_mark":
			bad(one.setting, "must be one character")
		}
	}
	var err error
	if opt.Location, err = time.LoadLocation(t.TimeZone); err != nil {
		bad("time_zone", "is no place of the time zone database, as Europe/Berlin")
	}
	of, tried := format, opt // what could not be read has its default there
	if !slices.Contains(file.Formats(), of) {
		of = file.FormatCSV
	}
	if tried.Source == "" {
		tried.Source = "unnamed" // by the template; whoever submits names it
	}
	if _, err := file.Open(strings.NewReader(""), of, tried); err != nil {
		bad("", strings.TrimPrefix(err.Error(), "open a batch file: "))
	}
	return format, opt, found
}

// templateRule says of every template what would be wrong with it when a file comes.
func templateRule(c *config.Config) []config.Problem {
	var found []config.Problem
	for _, name := range slices.Sorted(maps.Keys(c.Batch.Templates)) {
		_, _, problems := BatchFile(c, *c.Batch.Templates[name])
		for _, p := range problems {
			if p.Path == "time_zone" {
				continue // the settings' own check has said so
			}
			p.Path = strings.TrimSuffix("batch.templates."+name+"."+p.Path, ".")
			found = append(found, p)
		}
	}
	return found
}
