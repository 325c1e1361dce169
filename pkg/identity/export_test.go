package identity

// WithStep has a function called before each change of the disk. Its error ends
// the change, as a crash would.
func (f Folder) WithStep(step func(op, name string) error) Folder {
	f.step = step
	return f
}
