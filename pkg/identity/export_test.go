package identity

// WithStep returns a folder that calls a function before each change of the disk. Its error
// aborts the change, like a crash.
func (f Folder) WithStep(step func(op, name string) error) Folder {
	f.step = step
	return f
}
