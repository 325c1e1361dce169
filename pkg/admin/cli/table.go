package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// maxWidth is the width of tables in columns of text, unless --output wide is given.
const maxWidth = 120

// layout is how a command's tables are printed.
type layout struct {
	wide      bool
	names     bool // only the column of names
	name      string
	noHeaders bool
	sort      string // title of a column; empty: as the shards answer
}

// screen is an output with the layout of its tables. What is printed for people, and JSON, has nothing
// that a terminal would interpret.
type screen struct {
	io.Writer
	layout
	format format
}

// Write implements io.Writer, for whole lines.
func (s screen) Write(p []byte) (int, error) {
	text := ""
	switch s.format {
	case formatYAML: // package yaml quotes control characters
		return s.Writer.Write(p)
	case formatJSON:
		text = escaped(p)
	default:
		text = plain(p)
	}
	if _, err := io.WriteString(s.Writer, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// listing makes a command of one that prints a table: with --no-headers and --sort, and the formats wide
// and name. name is the title of the column of names.
func listing(cmd *cobra.Command, name string) *cobra.Command {
	cmd.Flags().Bool("no-headers", false, "print tables without their titles")
	cmd.Flags().String("sort", "", "`column` to sort by, such as "+strings.ToLower(name))
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[nameColumn] = name
	return cmd
}

// nameColumn annotates a command with the title of its table's column of names.
const nameColumn = "name-column"

// arrange sets the layout of a command's tables from its flags.
func arrange(a *app, cmd *cobra.Command) {
	s := screen{Writer: cmd.OutOrStdout()}
	if s.name = cmd.Annotations[nameColumn]; s.name != "" {
		s.noHeaders, _ = cmd.Flags().GetBool("no-headers")
		s.sort, _ = cmd.Flags().GetString("sort")
	}
	s.wide, s.names = a.format == formatWide, a.format == formatName
	if s.wide || s.names {
		a.format = formatTable
	}
	s.format = a.format
	cmd.SetOut(s)
}

// layoutOf returns the layout of an output.
func layoutOf(w io.Writer) layout {
	if s, ok := w.(screen); ok {
		return s.layout
	}
	return layout{}
}

// sorted returns the rows in the order of the column that --sort names.
func sorted[T any](w io.Writer, rows []T, columns []column[T]) ([]T, error) {
	by := layoutOf(w).sort
	if by == "" {
		return rows, nil
	}
	title := strings.ToUpper(strings.ReplaceAll(by, "-", " "))
	n := slices.IndexFunc(columns, func(c column[T]) bool { return strings.ReplaceAll(c.title, "-", " ") == title })
	if n < 0 {
		var have []string
		for _, c := range columns {
			have = append(have, strings.ToLower(strings.ReplaceAll(c.title, " ", "-")))
		}
		return rows, usagef("--sort: %.40q is not a column: want one of %s", by, strings.Join(have, ", "))
	}
	return slices.SortedStableFunc(slices.Values(rows), func(a, b T) int { return compareCells(columns[n].cell(a), columns[n].cell(b)) }), nil
}

// compareCells compares numbers and durations by their values, and other cells as texts.
func compareCells(a, b string) int {
	if x, err := leading(a); err == nil {
		if y, err := leading(b); err == nil {
			return cmp.Compare(x, y)
		}
	}
	if x, err := time.ParseDuration(a); err == nil {
		if y, err := time.ParseDuration(b); err == nil {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(a, b)
}

// leading returns the number of a cell such as "3" or "3 (config: 5)".
func leading(cell string) (int64, error) {
	number, _, _ := strings.Cut(cell, " ")
	return strconv.ParseInt(number, 10, 64)
}

// table prints rows, maybe in parts, in aligned columns.
type table[T any] struct {
	w       io.Writer
	columns []column[T]
	widths  []int // of the parts that are printed
	begun   bool
}

// print prints some rows, below the titles at the first call. Columns are as wide as in the parts
// before, or wider.
func (t *table[T]) print(rows []T) error {
	how := layoutOf(t.w)
	if how.names {
		return t.printNames(rows, how.name)
	}
	lines := make([][]string, 0, len(rows)+1)
	if !t.begun {
		t.begun, t.widths = true, make([]int, len(t.columns))
		if !how.noHeaders {
			lines = append(lines, t.titles())
		}
	}
	for _, r := range rows {
		lines = append(lines, t.cells(r))
	}
	for _, cells := range lines {
		for i, cell := range cells {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	if !how.wide {
		t.fit(how.name)
	}
	for _, cells := range lines {
		if _, err := fmt.Fprintln(t.w, t.line(cells, how.wide)); err != nil {
			return err
		}
	}
	return nil
}

func (t *table[T]) printNames(rows []T, name string) error {
	for _, r := range rows {
		for _, c := range t.columns {
			if c.title != name {
				continue
			}
			if _, err := fmt.Fprintln(t.w, cellOf(c, r)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *table[T]) titles() (titles []string) {
	for _, c := range t.columns {
		titles = append(titles, c.title)
	}
	return titles
}

func (t *table[T]) cells(r T) []string {
	cells := make([]string, len(t.columns))
	for i, c := range t.columns {
		if cells[i] = cellOf(c, r); cells[i] == "" {
			cells[i] = "-"
		}
	}
	return cells
}

// cellOf returns a cell of a row: words with a space between two of them.
func cellOf[T any](c column[T], r T) string {
	return strings.Join(strings.Fields(oneLine(c.cell(r))), " ")
}

// minWidth is the width below which no column is narrowed, and that of the last one at which long texts
// begin on a line of their own.
const (
	minWidth     = 8
	minLastWidth = 40
)

// fit narrows the widest columns until the last one has room for its title, but none to less than its
// title or minWidth, and not those of ids.
func (t *table[T]) fit(name string) {
	last := len(t.widths) - 1
	room := maxWidth - min(t.widths[last], max(minWidth, utf8.RuneCountInString(t.columns[last].title)))
	for t.before(last) > room {
		widest := -1
		for i, c := range t.columns[:last] {
			if c.title == name || c.title == "INSTANCE" || t.widths[i] <= max(minWidth, utf8.RuneCountInString(c.title)) {
				continue
			}
			if widest < 0 || t.widths[i] >= t.widths[widest] {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		t.widths[widest]--
	}
}

// before returns the width of what is before a column.
func (t *table[T]) before(n int) (total int) {
	for _, w := range t.widths[:n] {
		total += w + 2
	}
	return total
}

// line returns cells side by side. One that is too long is cut; the text of the last one is wrapped,
// below the others if there is not much room beside them.
func (t *table[T]) line(cells []string, wide bool) string {
	var line strings.Builder
	last := len(cells) - 1
	for i, cell := range cells[:last] {
		if runes := []rune(cell); len(runes) > t.widths[i] {
			cell = string(runes[:t.widths[i]-1]) + "…"
		}
		line.WriteString(cell + strings.Repeat(" ", 2+t.widths[i]-utf8.RuneCountInString(cell)))
	}
	indent := t.before(last)
	room := maxWidth - indent
	switch text := cells[last]; {
	case wide || utf8.RuneCountInString(text) <= room:
		line.WriteString(text)
	case room >= minLastWidth:
		line.WriteString(strings.Join(wrap(text, room), "\n"+strings.Repeat(" ", indent)))
	default:
		const below = "    "
		return strings.TrimRight(line.String(), " ") + "\n" + below + strings.Join(wrap(text, maxWidth-len(below)), "\n"+below)
	}
	return line.String()
}

// wrap breaks a text between words into lines of at most a width, and within words that are longer.
func wrap(text string, width int) (lines []string) {
	var line []rune
	for _, word := range strings.Fields(text) {
		w := []rune(word)
		if len(line) > 0 && len(line)+1+len(w) > width {
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for line = append(line, w...); len(line) > width; line = line[width:] {
			lines = append(lines, string(line[:width]))
		}
	}
	return append(lines, string(line))
}
