package files

import (
	"fmt"
	"os"
)

// SetAside moves the current set, with its records, into a subfolder, so that the directory
// has the empty set without a hash. Other files stay. It creates the folder, readable by the
// owner only. It may be retried after an error: files already moved are in the failed
// attempt's folder.
func (d *Dir) SetAside(folder string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	k, err := d.open()
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer k.close()
	set, err := k.recover()
	if err == nil {
		err = k.setAside(folder, set)
	}
	if err != nil {
		return fmt.Errorf("set aside the files received in %s: %w", d.config.Path, err)
	}
	d.set = manifest{}
	clear(d.cached)
	return nil
}

// setAside moves the hidden folder last: until then it records which files belong to the set.
func (k disk) setAside(folder string, set manifest) error {
	if err := k.mkdir(folder); err != nil && !os.IsExist(err) {
		return err
	}
	names := append(append([]string(nil), set.Names...), hashFile, homeDir)
	for _, name := range names {
		if !k.exists(name) {
			continue
		}
		if err := k.rename(name, folder+"/"+name); err != nil {
			return err
		}
	}
	if err := k.sync(folder); err != nil {
		return err
	}
	return k.sync(".")
}
