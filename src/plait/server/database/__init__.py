"""What the server remembers: tables, migrations, and functions that read and write them in `Database.run`."""
